INSERT INTO naive.account (id, balance) SELECT id, $2 FROM generate_series(1, $1::bigint) AS id
