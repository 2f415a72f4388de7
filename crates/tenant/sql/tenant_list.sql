SELECT tenant_id, name, zone, collation_name, rounding, created_at
FROM counterfoil.tenant
WHERE tenant_id > $1
ORDER BY tenant_id
LIMIT $2
