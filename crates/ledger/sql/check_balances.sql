-- What is posted is the sum of the entries and the balance after the last one, and no version is
-- beyond that of the balance.
SELECT coalesce(b.tenant_id, e.tenant_id) AS tenant_id, coalesce(b.account_id, e.account_id)::text AS subject,
       CASE
           WHEN b.account_id IS NULL THEN 'there are entries and no balance'
           ELSE format('posted is %s, the sum of the entries %s, the version %s and that of the last entry %s',
                       b.posted, coalesce(e.posted, 0), b.version, e.version)
       END AS detail
  FROM counterfoil.ledger_balance AS b
  FULL JOIN (
       SELECT tenant_id, account_id, sum(amount) AS posted, max(version) AS version
         FROM counterfoil.ledger_entry
        GROUP BY tenant_id, account_id
       ) AS e
    ON e.tenant_id = b.tenant_id AND e.account_id = b.account_id
 WHERE b.account_id IS NULL OR b.posted <> coalesce(e.posted, 0) OR b.version < e.version
 LIMIT 100
