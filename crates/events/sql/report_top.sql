SELECT counted.subject, sum(counted.n)::bigint AS n
  FROM (
    SELECT subject, n
      FROM counterfoil.rollup
     WHERE tenant_id = $1 AND stream = $2 AND subject <> '' AND bucket >= $3 AND bucket < $4
    UNION ALL
    SELECT subject, n
      FROM counterfoil.rollup_delta
     WHERE tenant_id = $1 AND stream = $2 AND subject <> '' AND bucket >= $3 AND bucket < $4
    UNION ALL
    -- Of the buckets that the ends cut, what is outside leaves and what is inside comes.
    SELECT event.subject, cut.sign
      FROM unnest($5::timestamptz[], $6::timestamptz[], $7::bigint[], $8::uuid[], $9::uuid[])
           AS cut (since, until, sign, least, most)
      JOIN counterfoil.event
        ON tenant_id = $1 AND id >= cut.least AND id <= cut.most AND stream = $2
       AND at >= cut.since AND at < cut.until
  ) AS counted
 GROUP BY 1
HAVING sum(counted.n) <> 0
 ORDER BY 2 DESC, 1
 LIMIT $10
