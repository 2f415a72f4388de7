SELECT r.tenant_id, r.source
  FROM unnest($1::bigint[], $2::text[]) AS u (tenant_id, source)
  JOIN counterfoil.ledger_source AS r
    ON r.tenant_id = u.tenant_id AND r.source = u.source
 ORDER BY r.tenant_id, r.source
   FOR NO KEY UPDATE OF r SKIP LOCKED
