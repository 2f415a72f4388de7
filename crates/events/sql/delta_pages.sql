SELECT pg_relation_size(format('counterfoil.rollup_delta_%s', $1::smallint)::regclass) > 0
