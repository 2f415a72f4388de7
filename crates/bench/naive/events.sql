CREATE SCHEMA naive;

-- As narrow as ours, with the same key and no other index, in one piece.
CREATE TABLE naive.event (
    tenant_id  bigint      NOT NULL,
    at         timestamptz NOT NULL,
    actor      bigint,
    id         uuid        NOT NULL,
    stream     text        NOT NULL,
    subject    text        NOT NULL,
    properties json,
    PRIMARY KEY (tenant_id, id)
);
