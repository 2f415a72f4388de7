INSERT INTO counterfoil.ledger_hold
       (tenant_id, id, account_id, amount, captured, state, expires_at, note, recorded_at, changed_at)
SELECT u.tenant_id, u.id, u.account_id, u.amount, u.captured, u.state, u.expires_at, u.note,
       u.recorded_at, u.changed_at
  FROM unnest($1::bigint[], $2::uuid[], $3::uuid[], $4::numeric[], $5::numeric[], $6::text[],
              $7::timestamptz[], $8::text[], $9::timestamptz[], $10::timestamptz[])
       AS u (tenant_id, id, account_id, amount, captured, state, expires_at, note,
             recorded_at, changed_at)
 ORDER BY u.tenant_id, u.id
