-- The naive way, as careful people write it: one function call is one transaction.
--
-- Whole numbers of cents in bigint, and room in the pages so that updates stay in them. This file
-- alone is the lean form: a function call that keeps balances right, and a log of it. careful.sql
-- adds what is left out here.
CREATE SCHEMA naive;

CREATE TABLE naive.account (
    id      bigint PRIMARY KEY,
    balance bigint NOT NULL CHECK (balance >= 0)
) WITH (fillfactor = 50);

CREATE TABLE naive.transfer (
    id           bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_account bigint      NOT NULL,
    to_account   bigint      NOT NULL,
    amount       bigint      NOT NULL CHECK (amount > 0),
    created_at   timestamptz NOT NULL DEFAULT now()
);

-- Accounts are updated in the order of their ids, so that two calls never wait for each other.
CREATE FUNCTION naive.transfer(from_id bigint, to_id bigint, cents bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    made bigint;
BEGIN
    IF from_id < to_id THEN
        UPDATE naive.account SET balance = balance - cents WHERE id = from_id AND balance >= cents;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'account % has less than %', from_id, cents USING ERRCODE = 'check_violation';
        END IF;
        UPDATE naive.account SET balance = balance + cents WHERE id = to_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no account %', to_id USING ERRCODE = 'no_data_found';
        END IF;
    ELSE
        UPDATE naive.account SET balance = balance + cents WHERE id = to_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'no account %', to_id USING ERRCODE = 'no_data_found';
        END IF;
        UPDATE naive.account SET balance = balance - cents WHERE id = from_id AND balance >= cents;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'account % has less than %', from_id, cents USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    INSERT INTO naive.transfer (from_account, to_account, amount) VALUES (from_id, to_id, cents) RETURNING id INTO made;
    RETURN made;
END
$$;
