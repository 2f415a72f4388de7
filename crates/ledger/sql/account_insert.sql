INSERT INTO counterfoil.ledger_account (tenant_id, id, code, asset, metadata, recorded_at)
SELECT u.tenant_id, u.id, u.code, u.asset, u.metadata::jsonb, u.recorded_at
  FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::timestamptz[])
       AS u (tenant_id, id, code, asset, metadata, recorded_at)
 ORDER BY u.tenant_id, u.id
