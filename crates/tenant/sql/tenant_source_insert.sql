INSERT INTO counterfoil.tenant_source (key, holder)
VALUES ($1, $2)
