-- As balance_update, where nothing but what is posted has changed: most columns need not be sent.
UPDATE counterfoil.ledger_balance AS b
   SET posted = u.posted, version = u.version, changed_at = u.changed_at
  FROM (
       SELECT unnest($1::bigint[]) AS tenant_id, unnest($2::uuid[]) AS account_id,
              unnest($3::numeric[]) AS posted, unnest($4::bigint[]) AS version,
              unnest($5::timestamptz[]) AS changed_at, unnest($6::bigint[]) AS loaded
       ) AS u
 WHERE b.tenant_id = u.tenant_id AND b.account_id = u.account_id AND b.version <= u.loaded
