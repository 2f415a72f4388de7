SELECT id FROM counterfoil.event_spill ORDER BY id LIMIT 1
