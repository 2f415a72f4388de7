SELECT t.id, t.description, t.metadata::text, t.effective_at, t.recorded_at,
       t.reverses, t.reversed_by, t.captures
  FROM counterfoil.ledger_transfer AS t
 WHERE t.tenant_id = $1 AND t.id = $2
