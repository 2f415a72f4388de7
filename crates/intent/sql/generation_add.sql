-- FOR SHARE: a generation that is being dropped at this moment is waited for, and then seen as dropped.
INSERT INTO counterfoil.stub_generation (gen)
SELECT $1::integer
FROM counterfoil.stub_retention AS r
WHERE r.dropped < $1
FOR SHARE OF r
ON CONFLICT (gen) DO NOTHING
