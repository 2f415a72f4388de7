//! Source keys of imports, in books.

use counterfoil_intent::{Changes, LockClass, Table, Wait};
use counterfoil_pg::{Error, Row, Scope, TenantId, Tx};
use jiff::Timestamp;

use super::{SOURCE_FILL, SOURCE_LOAD, SOURCE_LOCK, SOURCE_LOCK_SKIP, SOURCE_MAKE, SOURCE_UNMAKE, arrays};
use crate::source::Source;

#[derive(Debug)]
pub struct Sources;

fn key(row: &Row) -> Box<str> {
    row.get::<_, &str>(1).into()
}

fn source(row: &Row) -> Source {
    let hash = row
        .get::<_, &[u8]>(3)
        .try_into()
        .expect("a hash is 32 bytes as it is stored");
    Source {
        transfer: row.get(2),
        hash,
        recorded_at: row.get(4),
    }
}

impl Table for Sources {
    /// Beside transfers: both are locked after the accounts, and sources, whose name comes first,
    /// before transfers.
    const CLASS: LockClass = LockClass::Transfer;
    const NAME: &'static str = "ledger_source";
    type Key = Box<str>;
    type Row = Source;

    async fn make(_: &Scope, tx: &Tx, keys: &[(TenantId, Box<str>)]) -> Result<Vec<(TenantId, Box<str>)>, Error> {
        super::keys(tx, SOURCE_MAKE, keys, |key| &**key, key).await
    }

    async fn lock(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Box<str>)],
        wait: Wait,
    ) -> Result<Vec<(TenantId, Box<str>)>, Error> {
        let sql = match wait {
            Wait::Skip => SOURCE_LOCK_SKIP,
            Wait::Queue => SOURCE_LOCK,
        };
        super::keys(tx, sql, keys, |key| &**key, key).await
    }

    async fn load(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Box<str>)],
        _: Timestamp,
    ) -> Result<Vec<(TenantId, Box<str>, Source)>, Error> {
        let (tenants, sources) = arrays(keys, |key| &**key);
        let rows = tx.query(SOURCE_LOAD, &[&tenants, &sources]).await?;
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), key(row), source(row)))
            .collect())
    }

    async fn save(_: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> Result<(), Error> {
        assert!(
            changes.update.is_empty() && changes.insert.is_empty(),
            "a source is made, and never changes"
        );
        if !changes.fill.is_empty() {
            let rows = &changes.fill;
            let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
            let keys: Vec<_> = rows.iter().map(|(_, key, _)| &***key).collect();
            let transfers: Vec<_> = rows.iter().map(|(.., source)| source.transfer).collect();
            let hashes: Vec<_> = rows.iter().map(|(.., source)| source.hash.as_slice()).collect();
            let times: Vec<_> = rows.iter().map(|(.., source)| source.recorded_at).collect();
            tx.execute(SOURCE_FILL, &[&tenants, &keys, &transfers, &hashes, &times])
                .await?;
        }
        if !changes.unmake.is_empty() {
            let tenants: Vec<_> = changes.unmake.iter().map(|(tenant, _)| tenant.0).collect();
            let keys: Vec<_> = changes.unmake.iter().map(|(_, key)| &***key).collect();
            tx.execute(SOURCE_UNMAKE, &[&tenants, &keys]).await?;
        }
        Ok(())
    }
}
