SELECT e.version, e.transfer_id, e.amount, e.posted, e.recorded_at, e.effective_at,
       t.description, t.reverses, t.reversed_by, t.captures
  FROM counterfoil.ledger_entry AS e
  JOIN counterfoil.ledger_transfer AS t
    ON t.tenant_id = e.tenant_id AND t.id = e.transfer_id
 WHERE e.tenant_id = $1 AND e.account_id = $2 AND e.version < $3
 ORDER BY e.version DESC
 LIMIT $4
