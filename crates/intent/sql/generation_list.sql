SELECT g.gen, g.opened_at
FROM counterfoil.stub_generation AS g
ORDER BY g.gen
