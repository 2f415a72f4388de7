INSERT INTO counterfoil.event_spill (tenant_id, id, at, stream, subject, actor, properties)
SELECT unnest($1::bigint[]), unnest($2::uuid[]), unnest($3::timestamptz[]), unnest($4::text[]),
       unnest($5::text[]), unnest($6::bigint[]), unnest($7::text[])::json
ON CONFLICT (tenant_id, id) DO NOTHING
RETURNING tenant_id, id
