-- As counterfoil_ops: in all tenants. The time is that of the pass.
SELECT h.tenant_id, h.id, now()
  FROM counterfoil.ledger_hold AS h
 WHERE h.state = 'active' AND h.expires_at <= now()
 ORDER BY h.expires_at
 LIMIT $1
