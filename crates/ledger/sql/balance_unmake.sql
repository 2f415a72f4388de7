DELETE FROM counterfoil.ledger_balance AS r
 USING unnest($1::bigint[], $2::uuid[]) AS u (tenant_id, account_id)
 WHERE r.tenant_id = u.tenant_id AND r.account_id = u.account_id AND r.version = 0
