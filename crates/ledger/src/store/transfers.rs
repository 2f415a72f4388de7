//! Transfers in books, and the entries appended with them.

use counterfoil_intent::{AppendTable, Changes, Fact, LockClass, Table, Wait};
use counterfoil_pg::{Error, Row, Scope, TenantId, Tx, Whole};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    ENTRY_INSERT, TRANSFER_ACCOUNTS, TRANSFER_INSERT, TRANSFER_LOAD, TRANSFER_LOCK, TRANSFER_LOCK_SKIP,
    TRANSFER_UPDATE, arrays,
};
use crate::account::AccountId;
use crate::posting::{About, Entry, Line, TransferRow};

#[derive(Debug)]
pub struct Transfers;

/// The accounts that a transfer touches.
#[derive(Debug)]
pub struct TransferAccounts;

#[derive(Debug)]
pub struct Entries;

fn transfer(row: &Row) -> TransferRow {
    let (accounts, versions): (Vec<Uuid>, Vec<i64>) = (row.get(2), row.get(3));
    let amounts: Vec<Whole> = row.get(4);
    // The entry of a leg is there as long as the transfer is: the checker proves it.
    assert_eq!(accounts.len(), amounts.len(), "a leg of a stored transfer has no entry");
    let lines = accounts.into_iter().zip(versions).zip(amounts);
    TransferRow {
        lines: lines
            .map(|((account, version), amount)| Line {
                account: AccountId(account),
                version,
                amount: amount.0,
            })
            .collect(),
        about: About {
            description: row.get::<_, Option<&str>>(5).map(Into::into),
            metadata: row.get::<_, Option<&str>>(6).map(Into::into),
            reverses: row.get(9),
            captures: row.get(11),
        },
        effective_at: row.get(7),
        recorded_at: row.get(8),
        reversed_by: row.get(10),
    }
}

impl Table for Transfers {
    const CLASS: LockClass = LockClass::Transfer;
    const NAME: &'static str = "ledger_transfer";
    type Key = Uuid;
    type Row = TransferRow;

    async fn lock(_: &Scope, tx: &Tx, keys: &[(TenantId, Uuid)], wait: Wait) -> Result<Vec<(TenantId, Uuid)>, Error> {
        let sql = match wait {
            Wait::Skip => TRANSFER_LOCK_SKIP,
            Wait::Queue => TRANSFER_LOCK,
        };
        super::keys(tx, sql, keys, |id| *id, |row| row.get(1)).await
    }

    async fn load(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Uuid)],
        _: Timestamp,
    ) -> Result<Vec<(TenantId, Uuid, TransferRow)>, Error> {
        let (tenants, ids) = arrays(keys, |id| *id);
        let rows = tx.query(TRANSFER_LOAD, &[&tenants, &ids]).await?;
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), row.get(1), transfer(row)))
            .collect())
    }

    async fn save(_: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> Result<(), Error> {
        assert!(
            changes.fill.is_empty() && changes.unmake.is_empty(),
            "the id of a transfer is fresh"
        );
        if !changes.update.is_empty() {
            let rows = &changes.update;
            let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
            let ids: Vec<_> = rows.iter().map(|(_, id, _)| **id).collect();
            let by: Vec<_> = rows.iter().map(|(.., transfer)| transfer.reversed_by).collect();
            tx.execute(TRANSFER_UPDATE, &[&tenants, &ids, &by]).await?;
        }
        if !changes.insert.is_empty() {
            insert(tx, &changes.insert).await?;
        }
        Ok(())
    }
}

async fn insert(tx: &Tx, rows: &[(TenantId, &Uuid, &TransferRow)]) -> Result<(), Error> {
    let legs = rows.iter().map(|(.., transfer)| transfer.lines.len()).sum();
    let (mut accounts, mut versions) = (Vec::with_capacity(legs), Vec::with_capacity(legs));
    let (mut first, mut last) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    // PostgreSQL counts from one, and both ends are inside.
    let mut at = 1_i32;
    for (.., transfer) in rows {
        first.push(at);
        at += i32::try_from(transfer.lines.len()).expect("a transfer has few legs");
        last.push(at - 1);
        accounts.extend(transfer.lines.iter().map(|line| line.account.0));
        versions.extend(transfer.lines.iter().map(|line| line.version));
    }
    let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
    let ids: Vec<_> = rows.iter().map(|(_, id, _)| **id).collect();
    let descriptions: Vec<_> = rows
        .iter()
        .map(|(.., transfer)| transfer.about.description.as_deref())
        .collect();
    let metadata: Vec<_> = rows
        .iter()
        .map(|(.., transfer)| transfer.about.metadata.as_deref())
        .collect();
    let effective: Vec<_> = rows.iter().map(|(.., transfer)| transfer.effective_at).collect();
    let recorded: Vec<_> = rows.iter().map(|(.., transfer)| transfer.recorded_at).collect();
    let reverses: Vec<_> = rows.iter().map(|(.., transfer)| transfer.about.reverses).collect();
    let reversed_by: Vec<_> = rows.iter().map(|(.., transfer)| transfer.reversed_by).collect();
    let captures: Vec<_> = rows.iter().map(|(.., transfer)| transfer.about.captures).collect();
    tx.execute(
        TRANSFER_INSERT,
        &[
            &tenants,
            &ids,
            &first,
            &last,
            &accounts,
            &versions,
            &descriptions,
            &metadata,
            &effective,
            &recorded,
            &reverses,
            &reversed_by,
            &captures,
        ],
    )
    .await?;
    Ok(())
}

impl Fact for TransferAccounts {
    const NOUN: &'static str = "transfer";
    type Value = Vec<AccountId>;

    async fn read(
        _: &Scope,
        tx: &Tx,
        ids: &[(TenantId, Uuid)],
    ) -> Result<Vec<(TenantId, Uuid, Vec<AccountId>)>, Error> {
        let (tenants, ids) = arrays(ids, |id| *id);
        let rows = tx.query(TRANSFER_ACCOUNTS, &[&tenants, &ids]).await?;
        let accounts = |row: &Row| row.get::<_, Vec<Uuid>>(2).into_iter().map(AccountId).collect();
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), row.get(1), accounts(row)))
            .collect())
    }
}

impl AppendTable for Entries {
    type Row = Entry;

    async fn insert(_: &Scope, tx: &Tx, rows: &[(TenantId, Entry)]) -> Result<(), Error> {
        // In the order of the key: neighbours in the index are found in the cache.
        let mut rows: Vec<_> = rows.iter().collect();
        rows.sort_unstable_by_key(|(tenant, entry)| (*tenant, entry.account, entry.version));
        let tenants: Vec<_> = rows.iter().map(|(tenant, _)| tenant.0).collect();
        let accounts: Vec<_> = rows.iter().map(|(_, entry)| entry.account.0).collect();
        let versions: Vec<_> = rows.iter().map(|(_, entry)| entry.version).collect();
        let transfers: Vec<_> = rows.iter().map(|(_, entry)| entry.transfer).collect();
        let amounts: Vec<_> = rows.iter().map(|(_, entry)| Whole(entry.amount)).collect();
        let posted: Vec<_> = rows.iter().map(|(_, entry)| Whole(entry.posted)).collect();
        let recorded: Vec<_> = rows.iter().map(|(_, entry)| entry.recorded_at).collect();
        let effective: Vec<_> = rows.iter().map(|(_, entry)| entry.effective_at).collect();
        tx.execute(
            ENTRY_INSERT,
            &[
                &tenants, &accounts, &versions, &transfers, &amounts, &posted, &recorded, &effective,
            ],
        )
        .await?;
        Ok(())
    }
}
