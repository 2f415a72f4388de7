INSERT INTO counterfoil.ledger_entry
       (tenant_id, account_id, version, transfer_id, amount, posted, recorded_at, effective_at)
SELECT u.tenant_id, u.account_id, u.version, u.transfer_id, u.amount, u.posted, u.recorded_at,
       u.effective_at
  FROM unnest($1::bigint[], $2::uuid[], $3::bigint[], $4::uuid[], $5::numeric[], $6::numeric[],
              $7::timestamptz[], $8::timestamptz[])
       AS u (tenant_id, account_id, version, transfer_id, amount, posted, recorded_at, effective_at)
 ORDER BY u.tenant_id, u.account_id, u.version
