-- Days since 1970-01-01 UTC, by the server's clock.
SELECT pg_catalog.floor(pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()) / 86400)::bigint
