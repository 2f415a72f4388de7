-- One bound only: with two the planner expects so few rows that it reads and sorts all of them.
-- Where the prefix ends, the reader sees.
SELECT a.code, b.asset, b.scale, b.posted, b.held,
       CASE WHEN b.next_expiry <= greatest(now(), b.changed_at) THEN (
           SELECT sum(h.amount - h.captured)
             FROM counterfoil.ledger_hold AS h
            WHERE h.tenant_id = b.tenant_id AND h.account_id = b.account_id AND h.state = 'active'
              AND h.expires_at <= greatest(now(), b.changed_at)
       ) END AS expired,
       b.floor, b.ceiling, b.version, a.recorded_at, b.changed_at, b.closed_at, a.metadata::text
  FROM counterfoil.ledger_account AS a
  JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = a.tenant_id AND b.account_id = a.id
 WHERE a.tenant_id = $1 AND a.code >= $2
 ORDER BY a.code
 LIMIT $3
