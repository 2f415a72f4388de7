SELECT s.tenant_id, s.key, s.kind, s.origin, s.accepted, s.hashes, s.result::text, s.recorded_at
FROM counterfoil.stub AS s
WHERE s.tenant_id = $1 AND s.key = $2
ORDER BY s.gen DESC
LIMIT 1
