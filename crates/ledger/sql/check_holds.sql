-- What is held is the sum of the active holds, none of them expires before the account looks, and
-- what is captured has been transferred.
SELECT coalesce(b.tenant_id, h.tenant_id) AS tenant_id, coalesce(b.account_id, h.account_id)::text AS subject,
       format('held is %s, the sum of the active holds %s; it looks at %s, the first expires at %s',
              b.held, coalesce(h.held, 0), b.next_expiry, h.first_expiry) AS detail
  FROM counterfoil.ledger_balance AS b
  FULL JOIN (
       SELECT tenant_id, account_id, sum(amount - captured) AS held, min(expires_at) AS first_expiry
         FROM counterfoil.ledger_hold
        WHERE state = 'active'
        GROUP BY tenant_id, account_id
       ) AS h
    ON h.tenant_id = b.tenant_id AND h.account_id = b.account_id
 WHERE b.account_id IS NULL OR b.held <> coalesce(h.held, 0)
    OR (h.first_expiry IS NOT NULL AND (b.next_expiry IS NULL OR b.next_expiry > h.first_expiry))
 UNION ALL
SELECT h.tenant_id, h.id::text,
       format('captured is %s of %s, %s was transferred, and it is %s', h.captured, h.amount,
              coalesce(t.captured, 0), h.state)
  FROM counterfoil.ledger_hold AS h
  LEFT JOIN (
       SELECT t.tenant_id, t.captures, sum(e.amount) AS captured
         FROM counterfoil.ledger_transfer AS t
         JOIN counterfoil.ledger_entry AS e
           ON e.tenant_id = t.tenant_id AND e.account_id = t.accounts[2] AND e.version = t.versions[2]
        WHERE t.captures IS NOT NULL
        GROUP BY t.tenant_id, t.captures
       ) AS t
    ON t.tenant_id = h.tenant_id AND t.captures = h.id
 WHERE h.captured <> coalesce(t.captured, 0)
    OR (h.state = 'active' AND h.captured = h.amount)
    OR (h.state = 'captured' AND h.captured = 0)
 UNION ALL
SELECT t.tenant_id, t.id::text, format('it captures %s, which is not there', t.captures)
  FROM counterfoil.ledger_transfer AS t
 WHERE t.captures IS NOT NULL
   AND NOT EXISTS (SELECT FROM counterfoil.ledger_hold AS h WHERE h.tenant_id = t.tenant_id AND h.id = t.captures)
 LIMIT 100
