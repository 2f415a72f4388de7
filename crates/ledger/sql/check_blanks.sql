-- Blanks exist inside the transaction that makes them, and nowhere else.
SELECT tenant_id, code AS subject, 'a blank asset' AS detail
  FROM counterfoil.ledger_asset WHERE recorded_at IS NULL
 UNION ALL
SELECT tenant_id, account_id::text, 'a blank balance'
  FROM counterfoil.ledger_balance WHERE version < 1
 UNION ALL
SELECT tenant_id, source, 'a blank source'
  FROM counterfoil.ledger_source WHERE transfer_id IS NULL OR hash IS NULL OR recorded_at IS NULL
 LIMIT 100
