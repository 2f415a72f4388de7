INSERT INTO counterfoil.migration (name, checksum, applied_at)
VALUES ($1, $2, pg_catalog.now())
