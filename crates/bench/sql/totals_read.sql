SELECT (SELECT count(*) FROM counterfoil.ledger_entry) AS entries,
       (SELECT count(*) FROM counterfoil.stub) AS stubs,
       (SELECT coalesce(sum(posted), 0)::text FROM counterfoil.ledger_balance) AS total,
       (SELECT count(*)
          FROM counterfoil.ledger_balance AS b
          FULL JOIN (SELECT tenant_id, account_id, sum(amount) AS posted
                       FROM counterfoil.ledger_entry
                      GROUP BY tenant_id, account_id) AS e
            ON e.tenant_id = b.tenant_id AND e.account_id = b.account_id
         WHERE b.account_id IS NULL OR b.posted <> coalesce(e.posted, 0)) AS unexplained,
       (SELECT b.posted::text
          FROM counterfoil.ledger_account AS a
          JOIN counterfoil.ledger_balance AS b ON b.tenant_id = a.tenant_id AND b.account_id = a.id
         WHERE a.code = $1) AS hot
