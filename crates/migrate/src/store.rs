//! The table of applied migrations.

use counterfoil_pg::{Error, Tx};
use jiff::Timestamp;

counterfoil_pg::statements! {
    MIGRATION_THERE = "migration_there" ();
    MIGRATION_LIST = "migration_list" ();
    MIGRATION_INSERT = "migration_insert" (TEXT, BYTEA);
}

/// SHA-256 of a migration's SQL.
pub(crate) type Checksum = [u8; 32];

/// One applied migration.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub name: String,
    pub checksum: Vec<u8>,
    pub applied_at: Timestamp,
}

/// Everything applied to this database; `None` where the schema has never been migrated.
pub(crate) async fn recorded(tx: &Tx) -> Result<Option<Vec<Recorded>>, Error> {
    let there: bool = tx.query_one(MIGRATION_THERE, &[]).await?.try_get("there")?;
    if !there {
        return Ok(None);
    }
    let rows = tx.query(MIGRATION_LIST, &[]).await?;
    let read = rows.iter().map(|row| {
        Ok(Recorded {
            name: row.try_get("name")?,
            checksum: row.try_get("checksum")?,
            applied_at: row.try_get("applied_at")?,
        })
    });
    read.collect::<Result<_, Error>>().map(Some)
}

pub(crate) async fn record(tx: &Tx, name: &str, checksum: &Checksum) -> Result<(), Error> {
    tx.execute(MIGRATION_INSERT, &[&name, &&checksum[..]]).await?;
    Ok(())
}
