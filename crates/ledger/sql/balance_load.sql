-- `+ interval '0'` keeps the index of due holds, which is across tenants, out of the plan.
-- $3 is the database's clock, read after locking. Only where a hold may have expired by then are
-- the holds looked at: the expired ones, and the next to expire.
SELECT b.tenant_id, b.account_id, b.asset, b.scale, b.posted, b.held, b.floor, b.ceiling,
       b.closed_at, b.version, b.next_expiry, b.changed_at,
       CASE WHEN b.next_expiry <= greatest($3::timestamptz, b.changed_at) THEN (
           SELECT sum(h.amount - h.captured)
             FROM counterfoil.ledger_hold AS h
            WHERE h.tenant_id = b.tenant_id AND h.account_id = b.account_id AND h.state = 'active'
              AND h.expires_at + interval '0' <= greatest($3::timestamptz, b.changed_at)
       ) END AS expired,
       CASE WHEN b.next_expiry <= greatest($3::timestamptz, b.changed_at) THEN (
           SELECT h.expires_at
             FROM counterfoil.ledger_hold AS h
            WHERE h.tenant_id = b.tenant_id AND h.account_id = b.account_id AND h.state = 'active'
              AND h.expires_at + interval '0' > greatest($3::timestamptz, b.changed_at)
            ORDER BY h.expires_at
            LIMIT 1
       ) ELSE b.next_expiry END AS following
  FROM (SELECT unnest($1::bigint[]) AS tenant_id, unnest($2::uuid[]) AS account_id) AS u
  JOIN counterfoil.ledger_balance AS b
    ON b.tenant_id = u.tenant_id AND b.account_id = u.account_id
 WHERE b.version > 0
