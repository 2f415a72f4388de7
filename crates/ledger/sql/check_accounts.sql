-- Each account has its balance and its asset, and they agree.
SELECT coalesce(a.tenant_id, b.tenant_id) AS tenant_id, coalesce(a.code, b.account_id::text) AS subject,
       format('the account is in %s, its balance in %s with %s decimals, the asset has %s',
              a.asset, b.asset, b.scale, s.scale) AS detail
  FROM counterfoil.ledger_account AS a
  FULL JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = a.tenant_id AND b.account_id = a.id
  LEFT JOIN counterfoil.ledger_asset AS s
    ON s.tenant_id = a.tenant_id AND s.code = a.asset
 WHERE a.asset IS DISTINCT FROM b.asset OR s.scale IS DISTINCT FROM b.scale
 LIMIT 100
