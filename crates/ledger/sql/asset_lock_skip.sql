SELECT r.tenant_id, r.code
  FROM unnest($1::bigint[], $2::text[]) AS u (tenant_id, code)
  JOIN counterfoil.ledger_asset AS r
    ON r.tenant_id = u.tenant_id AND r.code = u.code
 ORDER BY r.tenant_id, r.code
   FOR NO KEY UPDATE OF r SKIP LOCKED
