SELECT r.tenant_id, r.code, r.scale, r.recorded_at
  FROM unnest($1::bigint[], $2::text[]) AS u (tenant_id, code)
  JOIN counterfoil.ledger_asset AS r
    ON r.tenant_id = u.tenant_id AND r.code = u.code
 WHERE r.recorded_at IS NOT NULL
