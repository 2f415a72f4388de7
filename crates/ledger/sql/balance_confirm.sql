-- Comes after the updates, so out of the locking order: it must not wait.
SELECT r.tenant_id, r.account_id
  FROM unnest($1::bigint[], $2::uuid[], $3::bigint[]) AS u (tenant_id, account_id, loaded)
  JOIN counterfoil.ledger_balance AS r
    ON r.tenant_id = u.tenant_id AND r.account_id = u.account_id AND r.version = u.loaded
   FOR NO KEY UPDATE OF r SKIP LOCKED
