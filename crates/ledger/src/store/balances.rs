//! Balances in books: the hot rows.

use counterfoil_intent::{Changes, LockClass, Table, Wait};
use counterfoil_pg::{Error, Row, Scope, Sql, TenantId, ToSql, Tx, Whole};
use jiff::Timestamp;

use super::{
    BALANCE_CONFIRM, BALANCE_FILL, BALANCE_LOAD, BALANCE_LOCK, BALANCE_LOCK_SKIP, BALANCE_MAKE, BALANCE_POST,
    BALANCE_UNMAKE, BALANCE_UPDATE, arrays, optional_whole, whole,
};
use crate::account::{AccountId, Balance};
use crate::asset::AssetCode;

#[derive(Debug)]
pub struct Balances;

fn id(row: &Row) -> AccountId {
    AccountId(row.get(1))
}

fn balance(row: &Row, now: Timestamp) -> Balance {
    let changed_at = row.get(11);
    Balance {
        asset: AssetCode::new(row.get(2)).expect("an asset's code was checked before it was stored"),
        scale: super::scale(row, 3),
        posted: whole(row, 4),
        held: whole(row, 5),
        floor: optional_whole(row, 6),
        ceiling: optional_whole(row, 7),
        closed_at: row.get(8),
        version: row.get(9),
        next_expiry: row.get(10),
        changed_at,
        expired: optional_whole(row, 12).unwrap_or_default(),
        following: row.get(13),
        as_of: now.max(changed_at),
    }
}

/// Every row must still have the version it was loaded with: an update of another would be lost.
fn all_there(sql: &'static Sql, expected: usize, got: u64) -> Result<(), Error> {
    if got == expected as u64 {
        Ok(())
    } else {
        Err(Error::Stale { statement: sql.name })
    }
}

impl Table for Balances {
    const CLASS: LockClass = LockClass::Account;
    const NAME: &'static str = "ledger_balance";
    type Key = AccountId;
    type Row = Balance;
    const REVISED: bool = true;

    fn carried(balance: &Balance, now: Timestamp) -> Option<Balance> {
        balance.carried(now)
    }

    async fn make(_: &Scope, tx: &Tx, keys: &[(TenantId, AccountId)]) -> Result<Vec<(TenantId, AccountId)>, Error> {
        super::keys(tx, BALANCE_MAKE, keys, |id| id.0, id).await
    }

    async fn lock(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, AccountId)],
        wait: Wait,
    ) -> Result<Vec<(TenantId, AccountId)>, Error> {
        let sql = match wait {
            Wait::Skip => BALANCE_LOCK_SKIP,
            Wait::Queue => BALANCE_LOCK,
        };
        super::keys(tx, sql, keys, |id| id.0, id).await
    }

    async fn load(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, AccountId)],
        now: Timestamp,
    ) -> Result<Vec<(TenantId, AccountId, Balance)>, Error> {
        let (tenants, ids) = arrays(keys, |id| id.0);
        let rows = tx.query(BALANCE_LOAD, &[&tenants, &ids, &now]).await?;
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), id(row), balance(row, now)))
            .collect())
    }

    async fn confirm(_: &Scope, tx: &Tx, rows: &[(TenantId, &AccountId, &Balance)]) -> Result<(), Error> {
        let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
        let ids: Vec<_> = rows.iter().map(|(_, id, _)| id.0).collect();
        let versions: Vec<_> = rows.iter().map(|(.., balance)| balance.version).collect();
        let locked = tx.query(BALANCE_CONFIRM, &[&tenants, &ids, &versions]).await?;
        all_there(BALANCE_CONFIRM, rows.len(), locked.len() as u64)
    }

    async fn save(_: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> Result<(), Error> {
        assert!(changes.insert.is_empty(), "the id of an account is never fresh");
        if !changes.update.is_empty() {
            update(tx, changes).await?;
        }
        if !changes.fill.is_empty() {
            let columns = Columns::of(&changes.fill);
            let assets: Vec<_> = changes
                .fill
                .iter()
                .map(|(.., balance)| balance.asset.as_str())
                .collect();
            let scales: Vec<_> = changes
                .fill
                .iter()
                .map(|(.., balance)| i16::from(balance.scale))
                .collect();
            let mut params: Vec<&(dyn ToSql + Sync)> = columns.params().into();
            params.push(&assets);
            params.push(&scales);
            tx.execute(BALANCE_FILL, &params).await?;
        }
        if !changes.unmake.is_empty() {
            let tenants: Vec<_> = changes.unmake.iter().map(|(tenant, _)| tenant.0).collect();
            let ids: Vec<_> = changes.unmake.iter().map(|(_, id)| id.0).collect();
            tx.execute(BALANCE_UNMAKE, &[&tenants, &ids]).await?;
        }
        Ok(())
    }
}

async fn update(tx: &Tx, changes: &Changes<'_, Balances>) -> Result<(), Error> {
    let loaded: Vec<_> = changes.before.iter().map(|before| before.version).collect();
    let posted_only = changes.update.iter().zip(&changes.before).all(|((.., now), before)| {
        now.held == before.held
            && now.floor == before.floor
            && now.ceiling == before.ceiling
            && now.closed_at == before.closed_at
            && now.stored_expiry() == before.next_expiry
    });
    // One statement for all rows: two would lock them in another order than that of their keys.
    let (sql, written) = if posted_only {
        let rows = &changes.update;
        let tenants: Vec<_> = rows.iter().map(|(tenant, ..)| tenant.0).collect();
        let ids: Vec<_> = rows.iter().map(|(_, id, _)| id.0).collect();
        let posted: Vec<_> = rows.iter().map(|(.., balance)| Whole(balance.posted)).collect();
        let versions: Vec<_> = rows.iter().map(|(.., balance)| balance.version).collect();
        let changed: Vec<_> = rows.iter().map(|(.., balance)| balance.changed_at).collect();
        let params: [&(dyn ToSql + Sync); 6] = [&tenants, &ids, &posted, &versions, &changed, &loaded];
        (BALANCE_POST, tx.execute(BALANCE_POST, &params).await?)
    } else {
        let columns = Columns::of(&changes.update);
        let mut params: Vec<&(dyn ToSql + Sync)> = columns.params().into();
        params.push(&loaded);
        (BALANCE_UPDATE, tx.execute(BALANCE_UPDATE, &params).await?)
    };
    all_there(sql, changes.update.len(), written)
}

/// The columns that change.
#[derive(Default)]
struct Columns {
    tenants: Vec<i64>,
    ids: Vec<uuid::Uuid>,
    posted: Vec<Whole>,
    held: Vec<Whole>,
    floors: Vec<Option<Whole>>,
    ceilings: Vec<Option<Whole>>,
    closed: Vec<Option<Timestamp>>,
    versions: Vec<i64>,
    expiries: Vec<Option<Timestamp>>,
    changed: Vec<Timestamp>,
}

impl Columns {
    fn of(rows: &[(TenantId, &AccountId, &Balance)]) -> Self {
        let mut out = Self::default();
        for (tenant, id, balance) in rows {
            out.tenants.push(tenant.0);
            out.ids.push(id.0);
            out.posted.push(Whole(balance.posted));
            out.held.push(Whole(balance.held));
            out.floors.push(balance.floor.map(Whole));
            out.ceilings.push(balance.ceiling.map(Whole));
            out.closed.push(balance.closed_at);
            out.versions.push(balance.version);
            out.expiries.push(balance.stored_expiry());
            out.changed.push(balance.changed_at);
        }
        out
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 10] {
        [
            &self.tenants,
            &self.ids,
            &self.posted,
            &self.held,
            &self.floors,
            &self.ceilings,
            &self.closed,
            &self.versions,
            &self.expiries,
            &self.changed,
        ]
    }
}
