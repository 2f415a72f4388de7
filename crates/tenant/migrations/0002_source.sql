-- Under which key an operator has made a tenant, so that the same request again makes no second one.
-- There is no tenant yet in whose walls this could be a stub: a plain lookup table, unique in the whole
-- installation, as that of API keys; `holder` is the tenant. Kept for ever, as tenants are.
CREATE TABLE counterfoil.tenant_source (
    -- A UUID as PostgreSQL writes it, or visible ASCII; no text is both.
    key    text   NOT NULL PRIMARY KEY CHECK (char_length(key) BETWEEN 1 AND 255),
    holder bigint NOT NULL
);

GRANT SELECT, INSERT ON counterfoil.tenant_source TO counterfoil_ops;
