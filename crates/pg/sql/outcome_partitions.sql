SELECT c.relname::text AS name
  FROM pg_catalog.pg_inherits AS i
  JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid
 WHERE i.inhparent = 'counterfoil.outcome'::pg_catalog.regclass
 ORDER BY c.relname
