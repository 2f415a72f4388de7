UPDATE counterfoil.ledger_asset AS r
   SET scale = u.scale, recorded_at = u.recorded_at
  FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::timestamptz[])
       AS u (tenant_id, code, scale, recorded_at)
 WHERE r.tenant_id = u.tenant_id AND r.code = u.code
