-- The holds that hold something back. Reads and sorts all of them: an account has few at a time.
SELECT h.id, a.code, a.asset, b.scale, h.amount, h.captured, h.state,
       coalesce(h.expires_at <= greatest(now(), b.changed_at), false) AS past,
       h.expires_at, h.note, h.recorded_at, h.changed_at
  FROM counterfoil.ledger_hold AS h
  JOIN counterfoil.ledger_account AS a
    ON a.tenant_id = h.tenant_id AND a.id = h.account_id
  JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = h.tenant_id AND b.account_id = h.account_id
 WHERE h.tenant_id = $1 AND h.account_id = $2 AND h.state = 'active'
   AND (h.expires_at IS NULL OR h.expires_at > greatest(now(), b.changed_at)) AND h.id > $3
 ORDER BY h.id
 LIMIT $4
