INSERT INTO counterfoil.stub (tenant_id, key, gen, kind, origin, accepted, hashes, result, recorded_at)
SELECT u.tenant_id, u.key, u.gen, u.kind, u.origin, u.accepted, u.hashes, u.result::json, $9
FROM unnest($1::bigint[], $2::bytea[], $3::int[], $4::text[], $5::bigint[], $6::boolean[], $7::bytea[], $8::text[])
    AS u(tenant_id, key, gen, kind, origin, accepted, hashes, result)
ORDER BY u.tenant_id, u.key, u.gen
