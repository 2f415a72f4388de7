SELECT clock_timestamp() AS now,
    (SELECT max(g.gen) FROM counterfoil.stub_generation AS g WHERE g.opened_at IS NOT NULL) AS open,
    (SELECT r.dropped FROM counterfoil.stub_retention AS r) AS dropped
