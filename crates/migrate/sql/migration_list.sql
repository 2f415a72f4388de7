SELECT name, checksum, applied_at
FROM counterfoil.migration
ORDER BY name
