-- What has been applied to this database. Read by every role, because a server looks here before it
-- serves; written by the owner alone, in the transaction of the migration itself.
CREATE TABLE counterfoil.migration (
    name       text        NOT NULL PRIMARY KEY,
    checksum   bytea       NOT NULL CHECK (octet_length(checksum) = 32),
    applied_at timestamptz NOT NULL
);

GRANT SELECT ON counterfoil.migration TO counterfoil_app, counterfoil_lane, counterfoil_ops, counterfoil_report;
