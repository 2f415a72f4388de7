WITH stored AS (
    INSERT INTO counterfoil.event (tenant_id, id, at, stream, subject, actor, properties)
    SELECT unnest($1::bigint[]), unnest($2::uuid[]), unnest($3::timestamptz[]), unnest($4::text[]),
           unnest($5::text[]), unnest($6::bigint[]), unnest($7::text[])::json
    ON CONFLICT (tenant_id, id) DO NOTHING
    RETURNING tenant_id, id, at, stream, subject
), counted AS (
    INSERT INTO counterfoil.rollup_delta (tenant_id, stream, subject, bucket, n, slot)
    SELECT tenant_id, stream, coalesce(subject, ''), bucket, count(*), $8::smallint
      FROM (SELECT tenant_id, stream, subject,
                   date_bin('15 minutes', at, '2000-01-01 00:00:00+00'::timestamptz) AS bucket
              FROM stored) AS event
     GROUP BY GROUPING SETS ((tenant_id, stream, bucket, subject), (tenant_id, stream, bucket))
)
SELECT count(*) AS stored,
       CASE WHEN count(*) < cardinality($2::uuid[]) THEN array_agg(tenant_id) END AS tenants,
       CASE WHEN count(*) < cardinality($2::uuid[]) THEN array_agg(id) END AS ids
  FROM stored
