UPDATE counterfoil.stub_retention
SET retention = make_interval(secs => $1::bigint / 1000.0)
WHERE NOT EXISTS (SELECT FROM counterfoil.stub_generation)
