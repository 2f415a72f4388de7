SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS wal,
       pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS writers
