SELECT r.tenant_id, r.id, r.accounts, r.versions,
       ARRAY(
           SELECT e.amount
             FROM unnest(r.accounts, r.versions) WITH ORDINALITY AS l (account_id, version, leg)
             JOIN counterfoil.ledger_entry AS e
               ON e.tenant_id = r.tenant_id AND e.account_id = l.account_id AND e.version = l.version
            ORDER BY l.leg
       ) AS amounts,
       r.description, r.metadata::text, r.effective_at, r.recorded_at,
       r.reverses, r.reversed_by, r.captures
  FROM unnest($1::bigint[], $2::uuid[]) AS u (tenant_id, id)
  JOIN counterfoil.ledger_transfer AS r
    ON r.tenant_id = u.tenant_id AND r.id = u.id
