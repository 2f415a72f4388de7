-- Tenants and API keys.

CREATE TABLE counterfoil.tenant (
    tenant_id      bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name           text        NOT NULL CHECK (char_length(name) BETWEEN 1 AND 200),
    -- An IANA name: whose days, months and document periods are meant.
    zone           text        NOT NULL DEFAULT 'UTC',
    -- A name of pg_collation: the order of lists that people read.
    collation_name text        NOT NULL DEFAULT 'C',
    rounding       text        NOT NULL DEFAULT 'half_up'
                   CHECK (rounding IN ('half_up', 'half_even', 'half_down', 'up', 'down')),
    created_at     timestamptz NOT NULL
);

ALTER TABLE counterfoil.tenant ENABLE ROW LEVEL SECURITY;
ALTER TABLE counterfoil.tenant FORCE ROW LEVEL SECURITY;

-- One-argument current_setting: without a scope it is an error, not an empty answer.
CREATE POLICY tenant_one ON counterfoil.tenant
    TO counterfoil_app, counterfoil_report
    USING (tenant_id = current_setting('counterfoil.tenant')::bigint)
    WITH CHECK (tenant_id = current_setting('counterfoil.tenant')::bigint);

CREATE POLICY tenant_batch ON counterfoil.tenant
    TO counterfoil_lane
    USING (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])))
    WITH CHECK (tenant_id IN (SELECT unnest(current_setting('counterfoil.tenants')::bigint[])));

CREATE POLICY tenant_ops ON counterfoil.tenant
    TO counterfoil_ops
    USING (true)
    WITH CHECK (true);

GRANT SELECT ON counterfoil.tenant TO counterfoil_app, counterfoil_report, counterfoil_lane;
GRANT SELECT, INSERT, UPDATE (name, zone, collation_name, rounding) ON counterfoil.tenant TO counterfoil_ops;

-- A key says who is asking, so it is looked up before there is a scope: a plain lookup table, unique
-- in the whole installation. Its wall is the grant: the one role that works across tenants reads it,
-- and nobody else. `holder` is a tenant, or NULL for an operator; it is no tenant_id, because these
-- rows do not belong to the tenant: it cannot see or change them.
CREATE TABLE counterfoil.api_key (
    api_key_id bigint      NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- SHA-256 of a token of 256 random bits: nothing to guess, so nothing to slow down with a salt.
    hash       bytea       NOT NULL UNIQUE CHECK (octet_length(hash) = 32),
    -- The beginning of the token, to tell keys apart in a list.
    prefix     text        NOT NULL,
    holder     bigint,
    label      text        NOT NULL CHECK (char_length(label) <= 200),
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);

GRANT SELECT, INSERT, UPDATE (revoked_at) ON counterfoil.api_key TO counterfoil_ops;
