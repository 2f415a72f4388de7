SELECT tenant_id, name, zone, collation_name, rounding, created_at
FROM counterfoil.tenant
WHERE tenant_id = $1
