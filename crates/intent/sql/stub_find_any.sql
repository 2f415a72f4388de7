SELECT s.tenant_id, s.key, s.kind, s.origin, s.accepted, s.hashes, s.result::text, s.recorded_at
FROM unnest($1::bigint[], $2::bytea[]) AS u(tenant_id, key)
JOIN counterfoil.stub AS s ON s.tenant_id = u.tenant_id AND s.key = u.key
