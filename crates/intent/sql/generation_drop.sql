UPDATE counterfoil.stub_retention SET dropped = greatest(dropped, $1)
