SELECT a.code, a.asset, b.scale, e.version, e.amount, e.posted
  FROM counterfoil.ledger_transfer AS t
 CROSS JOIN LATERAL unnest(t.accounts, t.versions) WITH ORDINALITY AS l (account_id, version, leg)
  JOIN counterfoil.ledger_entry AS e
    ON e.tenant_id = t.tenant_id AND e.account_id = l.account_id AND e.version = l.version
  JOIN counterfoil.ledger_account AS a
    ON a.tenant_id = t.tenant_id AND a.id = l.account_id
  JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = t.tenant_id AND b.account_id = l.account_id
 WHERE t.tenant_id = $1 AND t.id = $2
 ORDER BY l.leg
