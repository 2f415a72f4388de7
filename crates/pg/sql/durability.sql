SELECT pg_catalog.current_setting('fsync') = 'on',
       pg_catalog.current_setting('full_page_writes') = 'on',
       pg_catalog.current_setting('synchronous_commit')
