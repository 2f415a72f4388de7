-- By their places: this transaction has locked these rows, so nobody has moved them since.
UPDATE counterfoil.ledger_balance AS b
   SET posted = u.posted, held = u.held, floor = u.floor, ceiling = u.ceiling,
       closed_at = u.closed_at, version = u.version, next_expiry = u.next_expiry,
       changed_at = u.changed_at
  FROM unnest($1::tid[], $2::numeric[], $3::numeric[], $4::numeric[], $5::numeric[],
              $6::timestamptz[], $7::bigint[], $8::timestamptz[], $9::timestamptz[])
       AS u (place, posted, held, floor, ceiling, closed_at, version, next_expiry, changed_at)
 WHERE b.ctid = u.place
