SELECT holder
FROM counterfoil.api_key
WHERE hash = $1 AND revoked_at IS NULL
