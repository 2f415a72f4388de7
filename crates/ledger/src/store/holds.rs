//! Holds in books.

use counterfoil_intent::{Changes, Fact, LockClass, Table, Wait};
use counterfoil_pg::{Error, Row, Scope, TenantId, Tx, Whole};
use jiff::Timestamp;
use uuid::Uuid;

use super::{HOLD_ACCOUNTS, HOLD_INSERT, HOLD_LOAD, HOLD_LOCK, HOLD_LOCK_SKIP, HOLD_UPDATE, arrays, whole};
use crate::account::AccountId;
use crate::hold::{HoldRow, HoldState};

#[derive(Debug)]
pub struct Holds;

/// The account that a hold is on.
#[derive(Debug)]
pub struct HoldAccount;

pub(crate) fn state(text: &str) -> HoldState {
    HoldState::parse(text).expect("the column has a check")
}

fn hold(row: &Row) -> HoldRow {
    HoldRow {
        account: AccountId(row.get(2)),
        amount: whole(row, 3),
        captured: whole(row, 4),
        state: state(row.get(5)),
        expires_at: row.get(6),
        note: row.get::<_, Option<&str>>(7).map(Into::into),
        recorded_at: row.get(8),
        changed_at: row.get(9),
    }
}

impl Table for Holds {
    const CLASS: LockClass = LockClass::Hold;
    const NAME: &'static str = "ledger_hold";
    type Key = Uuid;
    type Row = HoldRow;

    async fn lock(_: &Scope, tx: &Tx, keys: &[(TenantId, Uuid)], wait: Wait) -> Result<Vec<(TenantId, Uuid)>, Error> {
        let sql = match wait {
            Wait::Skip => HOLD_LOCK_SKIP,
            Wait::Queue => HOLD_LOCK,
        };
        super::keys(tx, sql, keys, |id| *id, |row| row.get(1)).await
    }

    async fn load(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Uuid)],
        _: Timestamp,
    ) -> Result<Vec<(TenantId, Uuid, HoldRow)>, Error> {
        let (tenants, ids) = arrays(keys, |id| *id);
        let rows = tx.query(HOLD_LOAD, &[&tenants, &ids]).await?;
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), row.get(1), hold(row)))
            .collect())
    }

    async fn save(_: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> Result<(), Error> {
        assert!(
            changes.fill.is_empty() && changes.unmake.is_empty(),
            "the id of a hold is fresh"
        );
        if !changes.update.is_empty() {
            let rows = &changes.update;
            let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
            let ids: Vec<_> = rows.iter().map(|(_, id, _)| **id).collect();
            let captured: Vec<_> = rows.iter().map(|(.., hold)| Whole(hold.captured)).collect();
            let states: Vec<_> = rows.iter().map(|(.., hold)| hold.state.as_str()).collect();
            let changed: Vec<_> = rows.iter().map(|(.., hold)| hold.changed_at).collect();
            tx.execute(HOLD_UPDATE, &[&tenants, &ids, &captured, &states, &changed])
                .await?;
        }
        if !changes.insert.is_empty() {
            insert(tx, &changes.insert).await?;
        }
        Ok(())
    }
}

async fn insert(tx: &Tx, rows: &[(TenantId, &Uuid, &HoldRow)]) -> Result<(), Error> {
    let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
    let ids: Vec<_> = rows.iter().map(|(_, id, _)| **id).collect();
    let accounts: Vec<_> = rows.iter().map(|(.., hold)| hold.account.0).collect();
    let amounts: Vec<_> = rows.iter().map(|(.., hold)| Whole(hold.amount)).collect();
    let captured: Vec<_> = rows.iter().map(|(.., hold)| Whole(hold.captured)).collect();
    let states: Vec<_> = rows.iter().map(|(.., hold)| hold.state.as_str()).collect();
    let expiries: Vec<_> = rows.iter().map(|(.., hold)| hold.expires_at).collect();
    let notes: Vec<_> = rows.iter().map(|(.., hold)| hold.note.as_deref()).collect();
    let recorded: Vec<_> = rows.iter().map(|(.., hold)| hold.recorded_at).collect();
    let changed: Vec<_> = rows.iter().map(|(.., hold)| hold.changed_at).collect();
    tx.execute(
        HOLD_INSERT,
        &[
            &tenants, &ids, &accounts, &amounts, &captured, &states, &expiries, &notes, &recorded, &changed,
        ],
    )
    .await?;
    Ok(())
}

impl Fact for HoldAccount {
    const NOUN: &'static str = "hold";
    type Value = AccountId;

    async fn read(_: &Scope, tx: &Tx, ids: &[(TenantId, Uuid)]) -> Result<Vec<(TenantId, Uuid, AccountId)>, Error> {
        let (tenants, ids) = arrays(ids, |id| *id);
        let rows = tx.query(HOLD_ACCOUNTS, &[&tenants, &ids]).await?;
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), row.get(1), AccountId(row.get(2))))
            .collect())
    }
}
