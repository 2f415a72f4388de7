SELECT (SELECT count(*) FROM naive.transfer) AS transfers,
       (SELECT sum(balance)::bigint FROM naive.account) AS total,
       (SELECT balance FROM naive.account WHERE id = $1) AS hot
