-- LATERAL with LIMIT: one look into the primary key for each key, whatever the statistics of a new
-- partition say. As a plain join the plan cached while it is empty reads the whole generation.
SELECT s.tenant_id, s.key, s.kind, s.origin, s.accepted, s.hashes, s.result::text, s.recorded_at
FROM unnest($1::bigint[], $2::bytea[]) AS u(tenant_id, key)
CROSS JOIN LATERAL (
    SELECT t.tenant_id, t.key, t.kind, t.origin, t.accepted, t.hashes, t.result, t.recorded_at
    FROM counterfoil.stub AS t
    WHERE t.tenant_id = u.tenant_id AND t.key = u.key AND t.gen = $3
    LIMIT 1
) AS s
