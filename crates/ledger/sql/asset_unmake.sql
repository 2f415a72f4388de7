DELETE FROM counterfoil.ledger_asset AS r
 USING unnest($1::bigint[], $2::text[]) AS u (tenant_id, code)
 WHERE r.tenant_id = u.tenant_id AND r.code = u.code AND r.recorded_at IS NULL
