-- Reads every entry of the account: what takes effect when has no index, since entries are written
-- far more often than this is asked.
SELECT b.asset, b.scale, a.recorded_at,
       coalesce((
           SELECT sum(e.amount)
             FROM counterfoil.ledger_entry AS e
            WHERE e.tenant_id = b.tenant_id AND e.account_id = b.account_id AND e.effective_at <= $3
       ), 0) AS posted
  FROM counterfoil.ledger_account AS a
  JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = a.tenant_id AND b.account_id = a.id
 WHERE a.tenant_id = $1 AND a.code = $2
