SELECT api_key_id, prefix, holder, label, created_at, revoked_at
FROM counterfoil.api_key
WHERE holder IS NOT DISTINCT FROM $1 AND api_key_id > $2
ORDER BY api_key_id
LIMIT $3
