DELETE FROM counterfoil.ledger_source AS r
 USING unnest($1::bigint[], $2::text[]) AS u (tenant_id, source)
 WHERE r.tenant_id = u.tenant_id AND r.source = u.source AND r.transfer_id IS NULL
