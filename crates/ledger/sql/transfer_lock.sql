SELECT r.tenant_id, r.id
  FROM unnest($1::bigint[], $2::uuid[]) AS u (tenant_id, id)
  JOIN counterfoil.ledger_transfer AS r
    ON r.tenant_id = u.tenant_id AND r.id = u.id
 ORDER BY r.tenant_id, r.id
   FOR NO KEY UPDATE OF r
