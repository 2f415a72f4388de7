-- No account is outside of its limits. Holds count until their time has passed, as the account saw
-- it when it last changed.
SELECT b.tenant_id, b.account_id::text AS subject,
       format('%s posted, %s held, floor %s, ceiling %s, closed at %s',
              b.posted, h.held, b.floor, b.ceiling, b.closed_at) AS detail
  FROM counterfoil.ledger_balance AS b
 CROSS JOIN LATERAL (
       SELECT coalesce(sum(h.amount - h.captured), 0) AS held
         FROM counterfoil.ledger_hold AS h
        WHERE h.tenant_id = b.tenant_id AND h.account_id = b.account_id AND h.state = 'active'
          AND (h.expires_at IS NULL OR h.expires_at > greatest(now(), b.changed_at))
       ) AS h
 WHERE b.posted - h.held < b.floor OR b.posted > b.ceiling OR b.floor > b.ceiling
    OR (b.closed_at IS NOT NULL AND (b.posted <> 0 OR h.held <> 0))
 LIMIT 100
