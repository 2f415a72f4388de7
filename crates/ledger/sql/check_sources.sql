-- Each source has its transfer, and no transfer has two.
SELECT s.tenant_id, s.source AS subject, format('its transfer %s is not there', s.transfer_id) AS detail
  FROM counterfoil.ledger_source AS s
 WHERE NOT EXISTS (
       SELECT FROM counterfoil.ledger_transfer AS t WHERE t.tenant_id = s.tenant_id AND t.id = s.transfer_id
       )
 UNION ALL
SELECT s.tenant_id, s.transfer_id::text, format('%s sources have this transfer', count(*))
  FROM counterfoil.ledger_source AS s
 GROUP BY s.tenant_id, s.transfer_id
HAVING count(*) > 1
 LIMIT 100
