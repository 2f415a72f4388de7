-- In the order of the key, which is that of the arrays: two servers that insert the same keys must
-- wait for each other in one order.
INSERT INTO counterfoil.stub (tenant_id, key, gen, kind, origin, accepted, hashes, result, recorded_at)
SELECT u.tenant_id, u.key, u.gen, u.kind, u.origin, u.accepted, u.hashes, u.result::json, $9
  FROM (
       SELECT unnest($1::bigint[]) AS tenant_id, unnest($2::bytea[]) AS key, unnest($3::int[]) AS gen,
              unnest($4::text[]) AS kind, unnest($5::bigint[]) AS origin, unnest($6::boolean[]) AS accepted,
              unnest($7::bytea[]) AS hashes, unnest($8::text[]) AS result
       ) AS u
