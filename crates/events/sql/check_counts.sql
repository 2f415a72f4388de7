-- What is counted of events, folded and not yet folded, is what is stored.
WITH stored AS (
    SELECT tenant_id, stream, coalesce(subject, '') AS subject, bucket, count(*) AS n
      FROM (SELECT tenant_id, stream, subject,
                   date_bin('15 minutes', at, '2000-01-01 00:00:00+00'::timestamptz) AS bucket
              FROM counterfoil.event) AS event
     GROUP BY GROUPING SETS ((tenant_id, stream, subject, bucket), (tenant_id, stream, bucket))
), counted AS (
    SELECT tenant_id, stream, subject, bucket, sum(n) AS n
      FROM (SELECT tenant_id, stream, subject, bucket, n FROM counterfoil.rollup
            UNION ALL
            SELECT tenant_id, stream, subject, bucket, n FROM counterfoil.rollup_delta) AS part
     GROUP BY tenant_id, stream, subject, bucket
)
SELECT tenant_id,
       format('%s %s %s', stream, CASE subject WHEN '' THEN 'all subjects' ELSE subject END,
              to_char(bucket AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI"Z"')) AS subject,
       format('%s events are stored, and %s counted', coalesce(stored.n, 0), coalesce(counted.n, 0)) AS detail
  FROM stored FULL JOIN counted USING (tenant_id, stream, subject, bucket)
 WHERE stored.n IS DISTINCT FROM counted.n
 ORDER BY tenant_id, stream, subject, bucket
 LIMIT 100
