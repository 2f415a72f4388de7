SELECT r.tenant_id, r.account_id
  FROM unnest($1::bigint[], $2::uuid[]) AS u (tenant_id, account_id)
  JOIN counterfoil.ledger_balance AS r
    ON r.tenant_id = u.tenant_id AND r.account_id = u.account_id
 ORDER BY r.tenant_id, r.account_id
   FOR NO KEY UPDATE OF r SKIP LOCKED
