-- Blanks, to be filled or deleted in this transaction.
INSERT INTO counterfoil.ledger_balance (tenant_id, account_id, asset, scale, posted, held, version, changed_at)
SELECT u.tenant_id, u.account_id, '', 0, 0, 0, 0, '-infinity'
  FROM unnest($1::bigint[], $2::uuid[]) AS u (tenant_id, account_id)
 ORDER BY u.tenant_id, u.account_id
    ON CONFLICT (tenant_id, account_id) DO NOTHING
RETURNING tenant_id, account_id
