SELECT (SELECT count(*) FROM counterfoil.event) + (SELECT count(*) FROM counterfoil.event_spill),
       (SELECT coalesce(sum(n), 0)::bigint
          FROM (SELECT n FROM counterfoil.rollup WHERE subject = ''
                UNION ALL
                SELECT n FROM counterfoil.rollup_delta WHERE subject = '') AS part)
