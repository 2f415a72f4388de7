-- Events: what happened and is only ever counted, and what was counted of it.

-- Raw events. The id is the identity, and its first 48 bits are a time, so a partition is a day of ids: an
-- id can be looked for in one partition. There is no DEFAULT partition, whose rows every ATTACH would
-- have to look through: what has no partition yet waits in event_spill. One index: a second one would
-- cost every event as much as the first.
CREATE TABLE counterfoil.event (
    tenant_id  bigint      NOT NULL,
    at         timestamptz NOT NULL,
    -- A keyed hash of who did it. The address or name itself is not kept.
    actor      bigint,
    id         uuid        NOT NULL,
    stream     text        NOT NULL,
    subject    text        NOT NULL,
    -- `json`, not `jsonb`: kept as it was sent, and not taken apart on the way in.
    properties json,
    PRIMARY KEY (tenant_id, id)
) PARTITION BY RANGE (id);

ALTER TABLE counterfoil.event ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.event FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON counterfoil.event
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.event
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.event
    TO counterfoil_ops
    USING (true)
    WITH CHECK (true);
-- Partitions are never granted by themselves: every access goes through the parent's policies.
GRANT SELECT, INSERT ON counterfoil.event TO counterfoil_lane, counterfoil_ops;
GRANT SELECT ON counterfoil.event TO counterfoil_app, counterfoil_report;

-- The days that have a partition. The row makes two servers that make the same one wait for each other.
CREATE TABLE counterfoil.event_day (
    day date PRIMARY KEY
);
GRANT SELECT ON counterfoil.event_day TO counterfoil_lane, counterfoil_app, counterfoil_report, counterfoil_ops;

-- Events of days that have no partition yet: stored, acknowledged, and counted when they are taken in.
CREATE TABLE counterfoil.event_spill (
    tenant_id  bigint      NOT NULL,
    at         timestamptz NOT NULL,
    actor      bigint,
    id         uuid        NOT NULL,
    stream     text        NOT NULL,
    subject    text        NOT NULL,
    properties json,
    PRIMARY KEY (tenant_id, id)
);
ALTER TABLE counterfoil.event_spill ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.event_spill FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON counterfoil.event_spill
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.event_spill
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.event_spill
    TO counterfoil_ops
    USING (true)
    WITH CHECK (true);
GRANT SELECT, INSERT ON counterfoil.event_spill TO counterfoil_lane;
GRANT SELECT ON counterfoil.event_spill TO counterfoil_app, counterfoil_report;
-- UPDATE for FOR UPDATE, which locks the rows that are taken in.
GRANT SELECT, DELETE, UPDATE (at) ON counterfoil.event_spill TO counterfoil_ops;

-- What was counted: events per subject and quarter of an hour, by the events' own times. The subject ''
-- is all subjects of the stream together.
CREATE TABLE counterfoil.rollup (
    tenant_id bigint      NOT NULL,
    bucket    timestamptz NOT NULL,
    n         bigint      NOT NULL,
    stream    text        NOT NULL,
    subject   text        NOT NULL,
    PRIMARY KEY (tenant_id, stream, subject, bucket)
) WITH (fillfactor = 80);
-- For the subjects of a stretch of time. The count is in no index, so that folding stays in its page.
CREATE INDEX rollup_by_bucket ON counterfoil.rollup (tenant_id, stream, bucket);
ALTER TABLE counterfoil.rollup ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.rollup FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON counterfoil.rollup
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.rollup
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.rollup
    TO counterfoil_ops
    USING (true)
    WITH CHECK (true);
GRANT SELECT ON counterfoil.rollup TO counterfoil_app, counterfoil_report;
GRANT SELECT, INSERT, UPDATE (n) ON counterfoil.rollup TO counterfoil_ops;

-- What was counted and not yet folded into rollup. Ingest only ever appends: to update hot rows of
-- rollup in every batch becomes fifty times slower while somebody holds a snapshot. Six slots, of five
-- minutes each by the writer's clock, in turn: one is written, one is folded, and one that is empty is
-- truncated, which a table with a single partition could not be while it is written.
CREATE TABLE counterfoil.rollup_delta (
    tenant_id bigint      NOT NULL,
    bucket    timestamptz NOT NULL,
    n         bigint      NOT NULL,
    slot      smallint    NOT NULL,
    -- The format, should another one ever be needed beside it.
    version   smallint    NOT NULL DEFAULT 1,
    stream    text        NOT NULL,
    subject   text        NOT NULL
) PARTITION BY LIST (slot);
ALTER TABLE counterfoil.rollup_delta ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.rollup_delta FORCE ROW LEVEL SECURITY;
CREATE POLICY one_tenant ON counterfoil.rollup_delta
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.rollup_delta
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.rollup_delta
    TO counterfoil_ops
    USING (true)
    WITH CHECK (true);
-- Who truncates a slot has to see whether anything is left in it.
CREATE POLICY left_over ON counterfoil.rollup_delta
    FOR SELECT TO counterfoil_owner
    USING (true);
GRANT INSERT ON counterfoil.rollup_delta TO counterfoil_lane;
GRANT SELECT ON counterfoil.rollup_delta TO counterfoil_app, counterfoil_report;
GRANT SELECT, INSERT, DELETE ON counterfoil.rollup_delta TO counterfoil_ops;

DO $$
BEGIN
    FOR slot IN 0..5 LOOP
        EXECUTE format(
            'CREATE TABLE counterfoil.rollup_delta_%1$s PARTITION OF counterfoil.rollup_delta FOR VALUES IN (%1$s)
               WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000)', slot);
        EXECUTE format('ALTER TABLE counterfoil.rollup_delta_%s ENABLE ROW LEVEL SECURITY', slot);
        EXECUTE format('ALTER TABLE counterfoil.rollup_delta_%s FORCE ROW LEVEL SECURITY', slot);
    END LOOP;
END $$;

-- What names and addresses of actors are hashed with: 244 random bits. Whoever has it can find out which
-- hash a given address has, so only those who hash may read it.
CREATE TABLE counterfoil.event_actor_key (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    key bytea   NOT NULL CHECK (octet_length(key) = 32)
);
GRANT SELECT ON counterfoil.event_actor_key TO counterfoil_ops;
INSERT INTO counterfoil.event_actor_key (key)
VALUES (decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex'));
