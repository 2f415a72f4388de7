-- What a session-level value would look like: read before the transaction sets its own.
SELECT pg_catalog.current_setting('counterfoil.tenant', true),
       pg_catalog.current_setting('counterfoil.tenants', true)
