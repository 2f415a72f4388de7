-- The ledger: assets, accounts and their balances, transfers and their entries, holds, and the
-- source keys of imports.
--
-- Amounts are whole numbers of the asset's smallest unit. Rows are written by the lane role only.
-- Those that only lanes append, whose parents they have locked or read, carry no foreign keys;
-- crates/ledger/sql/check_*.sql prove what the keys would have.

-- What is counted. Never changes once recorded_at is set; without it a row is a blank that exists
-- inside the transaction that makes it, and nowhere else.
CREATE TABLE counterfoil.ledger_asset (
    tenant_id   bigint      NOT NULL,
    code        text        COLLATE "C" NOT NULL CHECK (octet_length(code) BETWEEN 1 AND 32),
    scale       smallint    NOT NULL CHECK (scale BETWEEN 0 AND 18),
    recorded_at timestamptz,
    PRIMARY KEY (tenant_id, code)
);

-- The facts of an account that never change. The id is made from the code (crates/ledger/src/account.rs).
CREATE TABLE counterfoil.ledger_account (
    tenant_id   bigint      NOT NULL,
    id          uuid        NOT NULL,
    code        text        COLLATE "C" NOT NULL CHECK (octet_length(code) BETWEEN 1 AND 255),
    asset       text        COLLATE "C" NOT NULL,
    metadata    jsonb,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (tenant_id, id),
    UNIQUE (tenant_id, code)
);

-- The hot row of an account. No index but the key, and room on the page, so that every update is a
-- HOT one. Version 0 is a blank (see ledger_asset).
CREATE TABLE counterfoil.ledger_balance (
    tenant_id   bigint        NOT NULL,
    account_id  uuid          NOT NULL,
    asset       text          COLLATE "C" NOT NULL,
    scale       smallint      NOT NULL,
    posted      numeric(38,0) NOT NULL,
    -- All active holds, also those that have expired and that no worker has seen yet.
    held        numeric(38,0) NOT NULL,
    floor       numeric(38,0),
    ceiling     numeric(38,0),
    closed_at   timestamptz,
    version     bigint        NOT NULL,
    -- Not later than the earliest expiry among the active holds.
    next_expiry timestamptz,
    changed_at  timestamptz   NOT NULL,
    PRIMARY KEY (tenant_id, account_id)
) WITH (
    fillfactor = 70,
    -- A hot account leaves thousands of dead versions a second; the default would let a small
    -- table grow to many times its size before anybody came.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0
);

-- A transfer names its entries by (account, version), leg by leg, so that entries need one index only.
CREATE TABLE counterfoil.ledger_transfer (
    tenant_id    bigint      NOT NULL,
    id           uuid        NOT NULL,
    accounts     uuid[]      NOT NULL,
    versions     bigint[]    NOT NULL,
    description  text,
    metadata     jsonb,
    effective_at timestamptz NOT NULL,
    recorded_at  timestamptz NOT NULL,
    -- The transfer that this one takes back, the one that takes this one back, and the hold that
    -- this one takes from.
    reverses     uuid,
    reversed_by  uuid,
    captures     uuid,
    PRIMARY KEY (tenant_id, id)
);

CREATE TABLE counterfoil.ledger_entry (
    tenant_id    bigint        NOT NULL,
    account_id   uuid          NOT NULL,
    version      bigint        NOT NULL,
    transfer_id  uuid          NOT NULL,
    amount       numeric(38,0) NOT NULL,
    -- The balance after it.
    posted       numeric(38,0) NOT NULL,
    recorded_at  timestamptz   NOT NULL,
    effective_at timestamptz   NOT NULL,
    PRIMARY KEY (tenant_id, account_id, version)
);

CREATE TABLE counterfoil.ledger_hold (
    tenant_id   bigint        NOT NULL,
    id          uuid          NOT NULL,
    account_id  uuid          NOT NULL,
    amount      numeric(38,0) NOT NULL CHECK (amount > 0),
    captured    numeric(38,0) NOT NULL CHECK (captured BETWEEN 0 AND amount),
    state       text          NOT NULL CHECK (state IN ('active', 'captured', 'released', 'expired')),
    expires_at  timestamptz,
    note        text,
    recorded_at timestamptz   NOT NULL,
    changed_at  timestamptz   NOT NULL,
    PRIMARY KEY (tenant_id, id)
);
-- What an account has to look at when a hold on it has expired.
CREATE INDEX ledger_hold_active ON counterfoil.ledger_hold (tenant_id, account_id, expires_at)
    WHERE state = 'active';
-- What the worker has to look at, in all tenants.
CREATE INDEX ledger_hold_due ON counterfoil.ledger_hold (expires_at)
    WHERE state = 'active' AND expires_at IS NOT NULL;

-- Imported transfers stay single for ever. Without transfer_id a row is a blank (see ledger_asset).
CREATE TABLE counterfoil.ledger_source (
    tenant_id   bigint NOT NULL,
    source      text   COLLATE "C" NOT NULL CHECK (octet_length(source) BETWEEN 1 AND 255),
    transfer_id uuid,
    -- SHA-256 of the body in its normal form.
    hash        bytea,
    recorded_at timestamptz,
    PRIMARY KEY (tenant_id, source)
);

ALTER TABLE counterfoil.ledger_asset    ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_asset    FORCE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_account  ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_account  FORCE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_balance  ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_balance  FORCE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_transfer ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_transfer FORCE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_entry    ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_entry    FORCE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_hold     ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_hold     FORCE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_source   ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.ledger_source   FORCE ROW LEVEL SECURITY;

CREATE POLICY one_tenant ON counterfoil.ledger_asset
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_asset
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_asset
    TO counterfoil_ops
    USING (true);

CREATE POLICY one_tenant ON counterfoil.ledger_account
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_account
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_account
    TO counterfoil_ops
    USING (true);

CREATE POLICY one_tenant ON counterfoil.ledger_balance
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_balance
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_balance
    TO counterfoil_ops
    USING (true);

CREATE POLICY one_tenant ON counterfoil.ledger_transfer
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_transfer
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_transfer
    TO counterfoil_ops
    USING (true);

CREATE POLICY one_tenant ON counterfoil.ledger_entry
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_entry
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_entry
    TO counterfoil_ops
    USING (true);

CREATE POLICY one_tenant ON counterfoil.ledger_hold
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_hold
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_hold
    TO counterfoil_ops
    USING (true);

CREATE POLICY one_tenant ON counterfoil.ledger_source
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);
CREATE POLICY tenants_of_the_batch ON counterfoil.ledger_source
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));
CREATE POLICY every_tenant ON counterfoil.ledger_source
    TO counterfoil_ops
    USING (true);

-- A lane takes back the blanks it has made, and can delete nothing else.
CREATE POLICY blanks_only ON counterfoil.ledger_asset AS RESTRICTIVE FOR DELETE
    TO counterfoil_lane USING (recorded_at IS NULL);
CREATE POLICY blanks_only ON counterfoil.ledger_balance AS RESTRICTIVE FOR DELETE
    TO counterfoil_lane USING (version = 0);
CREATE POLICY blanks_only ON counterfoil.ledger_source AS RESTRICTIVE FOR DELETE
    TO counterfoil_lane USING (transfer_id IS NULL);

GRANT SELECT ON
    counterfoil.ledger_asset, counterfoil.ledger_account, counterfoil.ledger_balance,
    counterfoil.ledger_transfer, counterfoil.ledger_entry, counterfoil.ledger_hold,
    counterfoil.ledger_source
    TO counterfoil_app, counterfoil_lane, counterfoil_ops, counterfoil_report;
GRANT INSERT ON
    counterfoil.ledger_asset, counterfoil.ledger_account, counterfoil.ledger_balance,
    counterfoil.ledger_transfer, counterfoil.ledger_entry, counterfoil.ledger_hold,
    counterfoil.ledger_source
    TO counterfoil_lane;
-- Locking a row takes the right to update some column of it.
GRANT UPDATE (scale, recorded_at) ON counterfoil.ledger_asset TO counterfoil_lane;
GRANT UPDATE (asset, scale, posted, held, floor, ceiling, closed_at, version, next_expiry, changed_at)
    ON counterfoil.ledger_balance TO counterfoil_lane;
GRANT UPDATE (reversed_by) ON counterfoil.ledger_transfer TO counterfoil_lane;
GRANT UPDATE (captured, state, changed_at) ON counterfoil.ledger_hold TO counterfoil_lane;
GRANT UPDATE (transfer_id, hash, recorded_at) ON counterfoil.ledger_source TO counterfoil_lane;
GRANT DELETE ON counterfoil.ledger_asset, counterfoil.ledger_balance, counterfoil.ledger_source
    TO counterfoil_lane;
