UPDATE counterfoil.stub_generation SET opened_at = clock_timestamp() WHERE gen = $1 AND opened_at IS NULL
