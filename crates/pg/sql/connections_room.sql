SELECT current_setting('max_connections')::integer
       - current_setting('superuser_reserved_connections')::integer
       - coalesce(current_setting('reserved_connections', true)::integer, 0) AS room
