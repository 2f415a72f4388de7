-- Stubs: one row for an intent, written in the same transaction as its effects.
--
-- Partitioned by generation, so that old stubs leave by dropping a table. For a UUIDv7 key the
-- generation follows from the key's own time, for any other it is the open one: see
-- docs/reference/stubs.md. There is no DEFAULT partition: a stub whose partition is missing
-- raises 23514, the partition is made, and the batch runs again.
CREATE TABLE counterfoil.stub (
    tenant_id   bigint      NOT NULL,
    key         bytea       NOT NULL CHECK (octet_length(key) BETWEEN 2 AND 256),
    gen         integer     NOT NULL,
    kind        text        NOT NULL,
    -- Which submission left it: after a lost COMMIT a caller's own stub is a first answer.
    origin      bigint      NOT NULL,
    accepted    boolean     NOT NULL,
    hashes      bytea       NOT NULL,
    -- `json`, not `jsonb`: a replay gives back the letters of the first answer.
    result      json        NOT NULL,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, key, gen)
) PARTITION BY LIST (gen);

ALTER TABLE counterfoil.stub ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.stub FORCE ROW LEVEL SECURITY;

CREATE POLICY one_tenant ON counterfoil.stub
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.stub
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.stub
    TO counterfoil_ops
    USING (true);

-- Partitions are never granted by themselves: every access goes through the parent's policies.
GRANT SELECT, INSERT ON counterfoil.stub TO counterfoil_lane;
GRANT SELECT ON counterfoil.stub TO counterfoil_app, counterfoil_report, counterfoil_ops;

-- The generations alive. The open one is the highest; keys that carry no time go into it.
CREATE TABLE counterfoil.stub_generation (
    gen       integer     PRIMARY KEY,
    -- When it became the open one; null while it only waits for keys from an hour ahead.
    opened_at timestamptz
);
GRANT SELECT ON counterfoil.stub_generation TO counterfoil_lane, counterfoil_app, counterfoil_ops, counterfoil_report;

-- One row: how long a generation is, which is how long a stub is kept at the least.
CREATE TABLE counterfoil.stub_retention (
    one       boolean     PRIMARY KEY DEFAULT true CHECK (one),
    retention interval    NOT NULL CHECK (retention > interval '0'),
    -- The highest generation ever dropped. It never comes back, whatever the clock says: the keys
    -- whose stubs went with it would be new again.
    dropped   integer     NOT NULL DEFAULT -1
);
GRANT SELECT ON counterfoil.stub_retention TO counterfoil_lane, counterfoil_app, counterfoil_ops, counterfoil_report;
INSERT INTO counterfoil.stub_retention (retention) VALUES (interval '30 days');
