-- $3 and $4 are the first and last leg of each transfer within $5 and $6, which hold the legs of all.
-- In the order of the key, which is that of the arrays.
INSERT INTO counterfoil.ledger_transfer
       (tenant_id, id, accounts, versions, description, metadata, effective_at, recorded_at,
        reverses, reversed_by, captures)
SELECT u.tenant_id, u.id, ($5::uuid[])[u.first_leg:u.last_leg], ($6::bigint[])[u.first_leg:u.last_leg],
       u.description, u.metadata::jsonb, u.effective_at, u.recorded_at,
       u.reverses, u.reversed_by, u.captures
  FROM (
       SELECT unnest($1::bigint[]) AS tenant_id, unnest($2::uuid[]) AS id,
              unnest($3::integer[]) AS first_leg, unnest($4::integer[]) AS last_leg,
              unnest($7::text[]) AS description, unnest($8::text[]) AS metadata,
              unnest($9::timestamptz[]) AS effective_at, unnest($10::timestamptz[]) AS recorded_at,
              unnest($11::uuid[]) AS reverses, unnest($12::uuid[]) AS reversed_by,
              unnest($13::uuid[]) AS captures
       ) AS u
