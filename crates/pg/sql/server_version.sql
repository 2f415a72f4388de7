SELECT pg_catalog.current_setting('server_version_num')::integer
