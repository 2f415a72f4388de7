SELECT pg_catalog.pg_advisory_xact_lock_shared($1, $2)
