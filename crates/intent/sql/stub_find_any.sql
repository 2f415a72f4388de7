-- LATERAL for the same reason as in stub_find; a key has one stub in all generations together.
SELECT s.tenant_id, s.key, s.kind, s.origin, s.accepted, s.hashes, s.result::text, s.recorded_at
FROM unnest($1::bigint[], $2::bytea[]) AS u(tenant_id, key)
CROSS JOIN LATERAL (
    SELECT t.tenant_id, t.key, t.kind, t.origin, t.accepted, t.hashes, t.result, t.recorded_at
    FROM counterfoil.stub AS t
    WHERE t.tenant_id = u.tenant_id AND t.key = u.key
    ORDER BY t.gen DESC
    LIMIT 1
) AS s
