DELETE FROM counterfoil.stub_generation WHERE gen = $1
