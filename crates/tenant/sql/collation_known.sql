-- Collations are per encoding; -1 is any.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_collation AS c
    JOIN pg_catalog.pg_database AS d ON c.collencoding IN (-1, d.encoding)
    WHERE d.datname = pg_catalog.current_database() AND c.collname = $1::text
) AS known
