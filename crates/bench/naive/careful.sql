-- What a ledger that people rely on has besides: no transfer of an account that does not exist, and
-- the transfers of one account, either way, newest first, without reading everybody's. (Ours has
-- both: lanes read the accounts they write to, and entries are keyed by account.)
ALTER TABLE naive.transfer
    ADD FOREIGN KEY (from_account) REFERENCES naive.account,
    ADD FOREIGN KEY (to_account) REFERENCES naive.account;

CREATE INDEX transfer_from ON naive.transfer (from_account, id);
CREATE INDEX transfer_to ON naive.transfer (to_account, id);
