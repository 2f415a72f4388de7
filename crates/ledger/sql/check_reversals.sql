-- A transfer and its reversal name each other, and the reversal has the same legs with the other sign.
SELECT t.tenant_id, t.id::text AS subject,
       format('it reverses %s, which is reversed by %s', t.reverses, o.reversed_by) AS detail
  FROM counterfoil.ledger_transfer AS t
  LEFT JOIN counterfoil.ledger_transfer AS o
    ON o.tenant_id = t.tenant_id AND o.id = t.reverses
 WHERE t.reverses IS NOT NULL
   AND (o.reversed_by IS DISTINCT FROM t.id OR o.accounts <> t.accounts)
 UNION ALL
SELECT t.tenant_id, t.id::text, format('it is reversed by %s, which reverses %s', t.reversed_by, o.reverses)
  FROM counterfoil.ledger_transfer AS t
  LEFT JOIN counterfoil.ledger_transfer AS o
    ON o.tenant_id = t.tenant_id AND o.id = t.reversed_by
 WHERE t.reversed_by IS NOT NULL
   AND o.reverses IS DISTINCT FROM t.id
 UNION ALL
SELECT t.tenant_id, t.id::text, 'it does not undo the entries of the transfer it reverses'
  FROM counterfoil.ledger_transfer AS t
  JOIN counterfoil.ledger_entry AS e
    ON e.tenant_id = t.tenant_id AND e.transfer_id IN (t.id, t.reverses)
 WHERE t.reverses IS NOT NULL
 GROUP BY t.tenant_id, t.id, e.account_id
HAVING sum(e.amount) <> 0
 LIMIT 100
