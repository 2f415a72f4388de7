SELECT min(part.first), max(part.last)
  FROM (
    SELECT min(bucket) AS first, max(bucket) AS last
      FROM counterfoil.rollup
     WHERE tenant_id = $1 AND stream = $2 AND subject = $3
    UNION ALL
    SELECT min(bucket), max(bucket)
      FROM counterfoil.rollup_delta
     WHERE tenant_id = $1 AND stream = $2 AND subject = $3
  ) AS part
