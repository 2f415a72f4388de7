INSERT INTO counterfoil.event_day (day) VALUES ($1) ON CONFLICT DO NOTHING
