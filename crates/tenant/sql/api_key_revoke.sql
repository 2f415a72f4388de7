-- Revoked twice, it stays revoked since the first time.
UPDATE counterfoil.api_key
SET revoked_at = COALESCE(revoked_at, pg_catalog.now())
WHERE api_key_id = $1
RETURNING api_key_id, prefix, holder, label, created_at, revoked_at
