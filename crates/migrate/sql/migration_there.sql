SELECT pg_catalog.to_regclass('counterfoil.migration') IS NOT NULL AS there
