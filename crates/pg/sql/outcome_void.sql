-- Waits while the twin that wrote this token is in progress. One row: the twin is not there, and
-- once this commits it never will be.
INSERT INTO counterfoil.outcome (token, verdict) VALUES ($1, 'rolled_back')
ON CONFLICT DO NOTHING
