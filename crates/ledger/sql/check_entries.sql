-- Each entry carries the balance after it, moves something, and is not earlier than the one before.
SELECT tenant_id, account_id::text AS subject,
       format('version %s: %s and %s make %s, recorded at %s after %s',
              version, before, amount, posted, recorded_at, recorded_before) AS detail
  FROM (
       SELECT e.*, coalesce(lag(e.posted) OVER account, 0) AS before,
              lag(e.recorded_at) OVER account AS recorded_before
         FROM counterfoil.ledger_entry AS e
       WINDOW account AS (PARTITION BY e.tenant_id, e.account_id ORDER BY e.version)
       ) AS e
 WHERE posted <> before + amount OR amount = 0 OR version < 2 OR recorded_at < recorded_before
 LIMIT 100
