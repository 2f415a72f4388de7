//! What can be asked of the ledger, and what it costs. Role `counterfoil_app`, one tenant; only
//! [`due_holds`] is for `counterfoil_ops`.

use std::fmt;

use counterfoil_pg::{Error, Row, Scope, TenantId, Tx};
use futures_util::try_join;
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    ACCOUNT_GET, ACCOUNT_LIST, BALANCE_EFFECTIVE, BALANCE_RECORDED, ENTRY_LIST, ENTRY_LIST_BACK, HOLD_DUE, HOLD_GET,
    HOLD_LIST, TRANSFER_GET, TRANSFER_LINES, optional_whole, scale, whole,
};
use crate::account::AccountId;
use crate::amount::render;
use crate::asset::AssetCode;
use crate::hold::HoldState;

/// An amount with the scale to write it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Money {
    pub minor: i128,
    pub scale: u8,
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self.minor, self.scale))
    }
}

#[derive(Debug, Clone)]
pub struct AccountView {
    pub code: String,
    pub asset: AssetCode,
    pub posted: Money,
    /// By holds whose time has not passed.
    pub held: Money,
    pub available: Money,
    pub floor: Option<Money>,
    pub ceiling: Option<Money>,
    pub version: i64,
    pub opened_at: Timestamp,
    pub changed_at: Timestamp,
    pub closed_at: Option<Timestamp>,
    /// A JSON object.
    pub metadata: Option<String>,
}

/// One line of a statement.
#[derive(Debug, Clone)]
pub struct EntryView {
    pub version: i64,
    pub transfer: Uuid,
    pub amount: Money,
    /// The balance after it.
    pub posted: Money,
    pub recorded_at: Timestamp,
    pub effective_at: Timestamp,
    pub about: AboutView,
}

/// What a transfer says of itself.
#[derive(Debug, Clone)]
pub struct AboutView {
    pub description: Option<String>,
    pub reverses: Option<Uuid>,
    pub reversed_by: Option<Uuid>,
    pub captures: Option<Uuid>,
}

#[derive(Debug, Clone)]
pub struct TransferView {
    pub id: Uuid,
    pub about: AboutView,
    /// A JSON object.
    pub metadata: Option<String>,
    pub effective_at: Timestamp,
    pub recorded_at: Timestamp,
    /// In the order of the legs.
    pub entries: Vec<LegView>,
}

#[derive(Debug, Clone)]
pub struct LegView {
    pub account: String,
    pub asset: AssetCode,
    pub amount: Money,
    pub version: i64,
    /// The balance after it.
    pub posted: Money,
}

#[derive(Debug, Clone)]
pub struct HoldView {
    pub id: Uuid,
    pub account: String,
    pub asset: AssetCode,
    pub amount: Money,
    pub captured: Money,
    /// `Expired` from the moment its time passes, whether or not the worker has seen it.
    pub state: HoldState,
    pub expires_at: Option<Timestamp>,
    pub note: Option<String>,
    pub recorded_at: Timestamp,
    pub changed_at: Timestamp,
}

/// A balance as it was, or as it is to be.
#[derive(Debug, Clone, Copy)]
pub struct BalanceAt {
    pub asset: AssetCode,
    /// Zero before the account was opened.
    pub posted: Money,
    pub opened_at: Timestamp,
}

/// Which way a statement is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    OldestFirst,
    NewestFirst,
}

/// A hold whose time has passed and that is still counted, for the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueHold {
    pub tenant: TenantId,
    pub hold: Uuid,
    /// The time of this look, which makes the key ([`crate::expire_key`]).
    pub pass: Timestamp,
}

fn tenant(scope: &Scope) -> i64 {
    match scope {
        Scope::Tenant(tenant) => tenant.0,
        Scope::Tenants(_) | Scope::Installation => panic!("the ledger is asked for one tenant at a time"),
    }
}

fn asset(row: &Row, column: usize) -> AssetCode {
    AssetCode::new(row.get(column)).expect("an asset's code was checked before it was stored")
}

fn account_view(row: &Row) -> AccountView {
    let scale = scale(row, 2);
    let money = |minor| Money { minor, scale };
    let (posted, held) = (
        whole(row, 3),
        whole(row, 4) - optional_whole(row, 5).unwrap_or_default(),
    );
    AccountView {
        code: row.get(0),
        asset: asset(row, 1),
        posted: money(posted),
        held: money(held),
        available: money(posted - held),
        floor: optional_whole(row, 6).map(money),
        ceiling: optional_whole(row, 7).map(money),
        version: row.get(8),
        opened_at: row.get(9),
        changed_at: row.get(10),
        closed_at: row.get(11),
        metadata: row.get(12),
    }
}

/// One account. Two index probes, and a look at its holds if one has just expired.
pub async fn account(scope: &Scope, tx: &Tx, code: &str) -> Result<Option<AccountView>, Error> {
    let row = tx.query_opt(ACCOUNT_GET, &[&tenant(scope), &code]).await?;
    Ok(row.as_ref().map(account_view))
}

/// A page of the accounts whose code begins with `prefix`, in the order of their codes' bytes,
/// after the code `after`. As many index probes as accounts.
pub async fn accounts(
    scope: &Scope,
    tx: &Tx,
    prefix: &str,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<AccountView>, Error> {
    // The codes after `after` begin at the first text that any of them could be: no code has a control
    // character in it.
    let start = after
        .map(|after| format!("{after}\u{1}"))
        .filter(|start| start.as_str() > prefix);
    let start = start.as_deref().unwrap_or(prefix);
    let rows = tx.query(ACCOUNT_LIST, &[&tenant(scope), &start, &limit]).await?;
    let page = rows.iter().map(account_view);
    Ok(page.take_while(|account| account.code.starts_with(prefix)).collect())
}

/// A page of an account's statement beyond the version `after`, or `None` where there is no such
/// account. As many index probes as entries.
pub async fn entries(
    scope: &Scope,
    tx: &Tx,
    code: &str,
    order: Order,
    after: Option<i64>,
    limit: i64,
) -> Result<Option<Vec<EntryView>>, Error> {
    let (sql, start) = match order {
        Order::OldestFirst => (ENTRY_LIST, 0),
        Order::NewestFirst => (ENTRY_LIST_BACK, i64::MAX),
    };
    let (tenant, id, start) = (tenant(scope), AccountId::of(code).0, after.unwrap_or(start));
    let params: [&(dyn counterfoil_pg::ToSql + Sync); 4] = [&tenant, &id, &start, &limit];
    let (account, rows) = try_join!(self::account(scope, tx, code), tx.query(sql, &params))?;
    let Some(account) = account else { return Ok(None) };
    let money = |minor| Money {
        minor,
        scale: account.posted.scale,
    };
    let entry = |row: &Row| EntryView {
        version: row.get(0),
        transfer: row.get(1),
        amount: money(whole(row, 2)),
        posted: money(whole(row, 3)),
        recorded_at: row.get(4),
        effective_at: row.get(5),
        about: AboutView {
            description: row.get(6),
            reverses: row.get(7),
            reversed_by: row.get(8),
            captures: row.get(9),
        },
    };
    Ok(Some(rows.iter().map(entry).collect()))
}

fn balance_at(row: &Row) -> BalanceAt {
    BalanceAt {
        asset: asset(row, 0),
        posted: Money {
            minor: whole(row, 3),
            scale: scale(row, 1),
        },
        opened_at: row.get(2),
    }
}

/// What was posted on an account by the entries recorded up to `at`. Some 2 log2(version) index
/// probes: a few dozen, however long the account's history is.
pub async fn recorded_balance(scope: &Scope, tx: &Tx, code: &str, at: Timestamp) -> Result<Option<BalanceAt>, Error> {
    let row = tx.query_opt(BALANCE_RECORDED, &[&tenant(scope), &code, &at]).await?;
    Ok(row.as_ref().map(balance_at))
}

/// What is posted on an account by the entries that take effect up to `at`, as far as they are
/// recorded today. Reads every entry of the account: about a second for some millions.
pub async fn effective_balance(scope: &Scope, tx: &Tx, code: &str, at: Timestamp) -> Result<Option<BalanceAt>, Error> {
    let row = tx.query_opt(BALANCE_EFFECTIVE, &[&tenant(scope), &code, &at]).await?;
    Ok(row.as_ref().map(balance_at))
}

/// A transfer with all its entries. Three index probes a leg.
pub async fn transfer(scope: &Scope, tx: &Tx, id: Uuid) -> Result<Option<TransferView>, Error> {
    let tenant = tenant(scope);
    let params: [&(dyn counterfoil_pg::ToSql + Sync); 2] = [&tenant, &id];
    let (row, lines) = try_join!(tx.query_opt(TRANSFER_GET, &params), tx.query(TRANSFER_LINES, &params))?;
    let Some(row) = row else { return Ok(None) };
    let leg = |row: &Row| {
        let scale = scale(row, 2);
        LegView {
            account: row.get(0),
            asset: asset(row, 1),
            version: row.get(3),
            amount: Money {
                minor: whole(row, 4),
                scale,
            },
            posted: Money {
                minor: whole(row, 5),
                scale,
            },
        }
    };
    Ok(Some(TransferView {
        id: row.get(0),
        about: AboutView {
            description: row.get(1),
            reverses: row.get(5),
            reversed_by: row.get(6),
            captures: row.get(7),
        },
        metadata: row.get(2),
        effective_at: row.get(3),
        recorded_at: row.get(4),
        entries: lines.iter().map(leg).collect(),
    }))
}

fn hold_view(row: &Row) -> HoldView {
    let scale = scale(row, 3);
    let stored = HoldState::parse(row.get(6)).expect("the column has a check");
    let past: bool = row.get(7);
    HoldView {
        id: row.get(0),
        account: row.get(1),
        asset: asset(row, 2),
        amount: Money {
            minor: whole(row, 4),
            scale,
        },
        captured: Money {
            minor: whole(row, 5),
            scale,
        },
        state: if stored == HoldState::Active && past {
            HoldState::Expired
        } else {
            stored
        },
        expires_at: row.get(8),
        note: row.get(9),
        recorded_at: row.get(10),
        changed_at: row.get(11),
    }
}

/// One hold. Three index probes.
pub async fn hold(scope: &Scope, tx: &Tx, id: Uuid) -> Result<Option<HoldView>, Error> {
    let row = tx.query_opt(HOLD_GET, &[&tenant(scope), &id]).await?;
    Ok(row.as_ref().map(hold_view))
}

/// A page of the holds that hold something back on an account, oldest first, after the hold
/// `after`. Reads all of the account's holds that are active.
pub async fn holds(
    scope: &Scope,
    tx: &Tx,
    code: &str,
    after: Option<Uuid>,
    limit: i64,
) -> Result<Vec<HoldView>, Error> {
    let after = after.unwrap_or(Uuid::nil());
    let rows = tx
        .query(HOLD_LIST, &[&tenant(scope), &AccountId::of(code).0, &after, &limit])
        .await?;
    Ok(rows.iter().map(hold_view).collect())
}

/// The holds of all tenants whose time has passed and that are still counted, the longest overdue
/// first. For the worker, as `counterfoil_ops` with [`Scope::Installation`]: each becomes an intent
/// of the kind [`crate::Expire`] under [`crate::expire_key`], and the next look comes after the
/// answers.
pub async fn due_holds(_: &Scope, tx: &Tx, limit: i64) -> Result<Vec<DueHold>, Error> {
    let rows = tx.query(HOLD_DUE, &[&limit]).await?;
    let due = |row: &Row| DueHold {
        tenant: TenantId(row.get(0)),
        hold: row.get(1),
        pass: row.get(2),
    };
    Ok(rows.iter().map(due).collect())
}
