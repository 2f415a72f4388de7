-- Only what still has the version it was loaded with; whoever sent this counts the rows. The arrays
-- are sorted by key and looked up one by one, so that rows are locked in that order.
UPDATE counterfoil.ledger_balance AS b
   SET posted = u.posted, held = u.held, floor = u.floor, ceiling = u.ceiling,
       closed_at = u.closed_at, version = u.version, next_expiry = u.next_expiry,
       changed_at = u.changed_at
  FROM (
       SELECT unnest($1::bigint[]) AS tenant_id, unnest($2::uuid[]) AS account_id,
              unnest($3::numeric[]) AS posted, unnest($4::numeric[]) AS held,
              unnest($5::numeric[]) AS floor, unnest($6::numeric[]) AS ceiling,
              unnest($7::timestamptz[]) AS closed_at, unnest($8::bigint[]) AS version,
              unnest($9::timestamptz[]) AS next_expiry, unnest($10::timestamptz[]) AS changed_at,
              unnest($11::bigint[]) AS loaded
       ) AS u
 WHERE b.tenant_id = u.tenant_id AND b.account_id = u.account_id AND b.version <= u.loaded
