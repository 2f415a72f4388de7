-- Blanks, to be filled or deleted in this transaction.
INSERT INTO counterfoil.ledger_source (tenant_id, source)
SELECT u.tenant_id, u.source
  FROM unnest($1::bigint[], $2::text[]) AS u (tenant_id, source)
 ORDER BY u.tenant_id, u.source
    ON CONFLICT (tenant_id, source) DO NOTHING
RETURNING tenant_id, source
