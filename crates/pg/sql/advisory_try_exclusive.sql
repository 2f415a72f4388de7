SELECT pg_catalog.pg_try_advisory_xact_lock($1, $2)
