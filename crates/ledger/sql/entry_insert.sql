-- In the order of the key, which is that of the arrays. Arrays are taken apart in the SELECT list
-- here and wherever rows are many: in FROM each of them is copied into a tuple store first.
INSERT INTO counterfoil.ledger_entry
       (tenant_id, account_id, version, transfer_id, amount, posted, recorded_at, effective_at)
SELECT unnest($1::bigint[]), unnest($2::uuid[]), unnest($3::bigint[]), unnest($4::uuid[]),
       unnest($5::numeric[]), unnest($6::numeric[]), unnest($7::timestamptz[]), unnest($8::timestamptz[])
