WITH taken AS (
    DELETE FROM counterfoil.rollup_delta
     WHERE slot = $1
    RETURNING tenant_id, stream, subject, bucket, n
)
INSERT INTO counterfoil.rollup (tenant_id, stream, subject, bucket, n)
SELECT tenant_id, stream, subject, bucket, sum(n)
  FROM taken
 GROUP BY tenant_id, stream, subject, bucket
 ORDER BY tenant_id, stream, subject, bucket
ON CONFLICT (tenant_id, stream, subject, bucket) DO UPDATE SET n = rollup.n + excluded.n
