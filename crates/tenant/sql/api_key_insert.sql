INSERT INTO counterfoil.api_key (hash, prefix, holder, label, created_at)
VALUES ($1, $2, $3, $4, pg_catalog.now())
RETURNING api_key_id, prefix, holder, label, created_at, revoked_at
