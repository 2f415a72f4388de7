-- Each leg of a transfer has its entry, and each entry is a leg of its transfer.
SELECT coalesce(l.tenant_id, e.tenant_id) AS tenant_id, coalesce(l.id, e.transfer_id)::text AS subject,
       CASE
           WHEN e.transfer_id IS NULL THEN format('no entry for the leg on %s at version %s', l.account_id, l.version)
           WHEN l.id IS NULL THEN format('no leg for the entry on %s at version %s', e.account_id, e.version)
           ELSE format('the entry on %s at version %s tells other times', e.account_id, e.version)
       END AS detail
  FROM (
       SELECT t.tenant_id, t.id, t.recorded_at, t.effective_at, l.account_id, l.version
         FROM counterfoil.ledger_transfer AS t
        CROSS JOIN LATERAL unnest(t.accounts, t.versions) AS l (account_id, version)
       ) AS l
  FULL JOIN counterfoil.ledger_entry AS e
    ON e.tenant_id = l.tenant_id AND e.account_id = l.account_id AND e.version = l.version
   AND e.transfer_id = l.id
 WHERE e.transfer_id IS NULL OR l.id IS NULL
    OR e.recorded_at <> l.recorded_at OR e.effective_at <> l.effective_at
 UNION ALL
SELECT t.tenant_id, t.id::text, format('it has %s legs', cardinality(t.accounts))
  FROM counterfoil.ledger_transfer AS t
 WHERE cardinality(t.accounts) NOT BETWEEN 2 AND 100
 LIMIT 100
