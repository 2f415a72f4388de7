SELECT r.tenant_id, r.source, r.transfer_id, r.hash, r.recorded_at
  FROM unnest($1::bigint[], $2::text[]) AS u (tenant_id, source)
  JOIN counterfoil.ledger_source AS r
    ON r.tenant_id = u.tenant_id AND r.source = u.source
 WHERE r.transfer_id IS NOT NULL
