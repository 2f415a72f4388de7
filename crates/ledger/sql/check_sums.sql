-- The legs of a transfer sum to zero per asset.
SELECT e.tenant_id, e.transfer_id::text AS subject,
       format('the legs in %s sum to %s', b.asset, sum(e.amount)) AS detail
  FROM counterfoil.ledger_entry AS e
  JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = e.tenant_id AND b.account_id = e.account_id
 GROUP BY e.tenant_id, e.transfer_id, b.asset
HAVING sum(e.amount) <> 0
 LIMIT 100
