SELECT width_bucket(counted.bucket, $4::timestamptz[]) AS interval, sum(counted.n)::bigint AS n
  FROM (
    SELECT bucket, n
      FROM counterfoil.rollup
     WHERE tenant_id = $1 AND stream = $2 AND subject = $3 AND bucket >= $5 AND bucket < $6
    UNION ALL
    SELECT bucket, n
      FROM counterfoil.rollup_delta
     WHERE tenant_id = $1 AND stream = $2 AND subject = $3 AND bucket >= $5 AND bucket < $6
    UNION ALL
    -- A bucket that an edge cuts is counted where it begins. What of it is behind the edge moves over.
    SELECT moved.bucket, moved.n
      FROM unnest($7::timestamptz[], $8::uuid[], $9::uuid[]) AS cut (edge, least, most)
     CROSS JOIN LATERAL (
        SELECT count(*) AS n
          FROM counterfoil.event
         WHERE tenant_id = $1 AND id >= cut.least AND id <= cut.most
           AND stream = $2 AND (subject = $3 OR $3 = '')
           AND at >= cut.edge
           AND at < date_bin('15 minutes', cut.edge, '2000-01-01 00:00:00+00'::timestamptz) + interval '15 minutes'
     ) AS behind
     CROSS JOIN LATERAL (VALUES (cut.edge - interval '1 microsecond', -behind.n), (cut.edge, behind.n)) AS moved (bucket, n)
  ) AS counted
 GROUP BY 1
 ORDER BY 1
