SELECT t.tenant_id, t.name, t.zone, t.collation_name, t.rounding, t.created_at
FROM counterfoil.tenant_source AS s
JOIN counterfoil.tenant AS t ON t.tenant_id = s.holder
WHERE s.key = $1
