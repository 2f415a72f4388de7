-- One row for each transaction without stubs whose COMMIT may have to be asked after, written by
-- that transaction itself (crates/pg/src/outcome.rs).
--
-- The token is a UUIDv7, so its range is its day. There is no DEFAULT partition and none is made
-- here: whoever finds its day missing makes it, and maintenance makes them ahead.
--
-- No tenant_id and no row security: a row says nothing but "this token was committed".
CREATE TABLE counterfoil.outcome (
    token       uuid        NOT NULL,
    -- `committed`: the transaction that wrote the token. `rolled_back`: whoever asked after it,
    -- found nothing, and thereby made sure that nothing comes later.
    verdict     text        NOT NULL CHECK (verdict IN ('committed', 'rolled_back')),
    recorded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (token)
) PARTITION BY RANGE (token);

GRANT SELECT, INSERT ON counterfoil.outcome
   TO counterfoil_app, counterfoil_lane, counterfoil_ops;
