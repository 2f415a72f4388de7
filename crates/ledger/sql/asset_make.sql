-- Blanks, to be filled or deleted in this transaction.
INSERT INTO counterfoil.ledger_asset (tenant_id, code, scale)
SELECT u.tenant_id, u.code, 0
  FROM unnest($1::bigint[], $2::text[]) AS u (tenant_id, code)
 ORDER BY u.tenant_id, u.code
    ON CONFLICT (tenant_id, code) DO NOTHING
RETURNING tenant_id, code
