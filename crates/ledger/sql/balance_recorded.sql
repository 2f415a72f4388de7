-- The last entry recorded by $3, found by halving the versions: recorded times never go back on
-- one account. Some 2 log2(version) index probes, however many entries there are.
WITH RECURSIVE account AS MATERIALIZED (
    SELECT b.tenant_id, b.account_id, b.asset, b.scale, b.version, a.recorded_at
      FROM counterfoil.ledger_account AS a
      JOIN counterfoil.ledger_balance AS b
        ON b.tenant_id = a.tenant_id AND b.account_id = a.id
     WHERE a.tenant_id = $1 AND a.code = $2
), search (low, high) AS (
    -- Every entry up to version `low` was recorded by then; `high` is as far as that may go.
    SELECT 0::bigint, c.version FROM account AS c
    UNION ALL
    SELECT CASE WHEN m.recorded THEN m.middle ELSE s.low END,
           CASE WHEN m.recorded THEN s.high ELSE m.middle - 1 END
      FROM search AS s
     CROSS JOIN LATERAL (
           SELECT (s.low + s.high + 1) / 2 AS middle,
                  coalesce((
                      SELECT e.recorded_at <= $3
                        FROM counterfoil.ledger_entry AS e
                       WHERE e.tenant_id = $1
                         AND e.account_id = (SELECT c.account_id FROM account AS c)
                         AND e.version <= (s.low + s.high + 1) / 2
                       ORDER BY e.version DESC
                       LIMIT 1
                  ), true) AS recorded
           ) AS m
     WHERE s.low < s.high
)
SELECT c.asset, c.scale, c.recorded_at,
       coalesce((
           SELECT e.posted
             FROM counterfoil.ledger_entry AS e
            WHERE e.tenant_id = $1 AND e.account_id = c.account_id AND e.version <= s.low
            ORDER BY e.version DESC
            LIMIT 1
       ), 0) AS posted
  FROM account AS c
  JOIN search AS s ON s.low = s.high
