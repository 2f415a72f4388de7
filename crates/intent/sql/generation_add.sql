INSERT INTO counterfoil.stub_generation (gen) VALUES ($1) ON CONFLICT (gen) DO NOTHING
