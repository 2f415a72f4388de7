UPDATE counterfoil.ledger_source AS r
   SET transfer_id = u.transfer_id, hash = u.hash, recorded_at = u.recorded_at
  FROM unnest($1::bigint[], $2::text[], $3::uuid[], $4::bytea[], $5::timestamptz[])
       AS u (tenant_id, source, transfer_id, hash, recorded_at)
 WHERE r.tenant_id = u.tenant_id AND r.source = u.source
