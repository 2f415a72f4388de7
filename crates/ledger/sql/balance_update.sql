UPDATE counterfoil.ledger_balance AS b
   SET posted = u.posted, held = u.held, floor = u.floor, ceiling = u.ceiling,
       closed_at = u.closed_at, version = u.version, next_expiry = u.next_expiry,
       changed_at = u.changed_at
  FROM unnest($1::bigint[], $2::uuid[], $3::numeric[], $4::numeric[], $5::numeric[], $6::numeric[],
              $7::timestamptz[], $8::bigint[], $9::timestamptz[], $10::timestamptz[])
       AS u (tenant_id, account_id, posted, held, floor, ceiling,
             closed_at, version, next_expiry, changed_at)
 WHERE b.tenant_id = u.tenant_id AND b.account_id = u.account_id
