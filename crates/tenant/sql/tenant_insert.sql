INSERT INTO counterfoil.tenant (name, zone, collation_name, rounding, created_at)
VALUES ($1, $2, $3, $4, pg_catalog.now())
RETURNING tenant_id, name, zone, collation_name, rounding, created_at
