-- $3 and $4 are the first and last leg of each transfer within $5 and $6, which hold the legs of all.
INSERT INTO counterfoil.ledger_transfer
       (tenant_id, id, accounts, versions, description, metadata, effective_at, recorded_at,
        reverses, reversed_by, captures)
SELECT u.tenant_id, u.id, ($5::uuid[])[u.first_leg:u.last_leg], ($6::bigint[])[u.first_leg:u.last_leg],
       u.description, u.metadata::jsonb, u.effective_at, u.recorded_at,
       u.reverses, u.reversed_by, u.captures
  FROM unnest($1::bigint[], $2::uuid[], $3::integer[], $4::integer[], $7::text[], $8::text[],
              $9::timestamptz[], $10::timestamptz[], $11::uuid[], $12::uuid[], $13::uuid[])
       AS u (tenant_id, id, first_leg, last_leg, description, metadata,
             effective_at, recorded_at, reverses, reversed_by, captures)
 ORDER BY u.tenant_id, u.id
