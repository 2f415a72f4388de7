//! The ledger: who has how much of what, and how it came to be.
//!
//! **Owns** assets, accounts and their balances, transfers and their entries, holds, the kinds that
//! write them (`ledger.*`), the questions that read them, the import of journals, and the checker
//! of promise 4.
//!
//! **Invariants** (promise 4). The legs of a transfer sum to zero per asset. What is posted on an
//! account is the sum of its entries, what is held the sum of its active holds. No commit leaves an
//! account further outside of its limits than it was. A hold whose time has passed holds nothing
//! back, whether or not a worker has seen it. On one account neither the version nor the recorded
//! time ever goes back.
//!
//! **Must not know** HTTP, and no lane: kinds say which rows they need, and change them in memory.

mod account;
mod amount;
mod asset;
mod capture;
mod close;
pub mod codes;
mod draft;
mod expire;
mod hold;
pub mod import;
mod limit;
mod name;
mod open;
mod outcome;
mod posting;
mod release;
mod reverse;
mod source;
mod store;
mod text;
mod time;
mod transfer;

use counterfoil_intent::Kinds;

pub use account::{Account, AccountCode, AccountId, Balance};
pub use amount::{Decimal, MAX_SCALE, NoAmount, render};
pub use asset::{Asset, AssetCode, NewAsset, NewAssetBody};
pub use capture::{Capture, CaptureBody};
pub use close::{Close, CloseBody};
pub use expire::{Expire, ExpireBody, key as expire_key};
pub use hold::{Expiry, Hold, HoldBody, HoldRow, HoldState};
pub use limit::{Limit, LimitBody};
pub use open::{Open, OpenBody};
pub use posting::{About, Entry, Line, TransferRow};
pub use release::{Release, ReleaseBody};
pub use reverse::{Reverse, ReverseBody};
pub use source::{Import, ImportBody, Source};
pub use store::ALL as STATEMENTS;
pub use store::{Accounts, Assets, Balances, Entries, HoldAccount, Holds, Sources, TransferAccounts, Transfers};
pub use store::{check, read};
pub use transfer::{Transfer, TransferBody};

/// Migrations of this crate, in order.
pub const MIGRATIONS: &[(&str, &str)] = &[("ledger/0001_ledger", include_str!("../migrations/0001_ledger.sql"))];

/// Registers the kinds of the ledger, with the tables they write and the facts they ask for.
pub fn register(kinds: &mut Kinds) {
    kinds
        .table::<Assets>()
        .table::<Balances>()
        .table::<Holds>()
        .table::<Sources>()
        .table::<Transfers>()
        .append_table::<Accounts>()
        .append_table::<Entries>()
        .fact::<HoldAccount>()
        .fact::<TransferAccounts>()
        .kind::<NewAsset>()
        .kind::<Open>()
        .kind::<Limit>()
        .kind::<Close>()
        .kind::<Transfer>()
        .kind::<Hold>()
        .kind::<Capture>()
        .kind::<Release>()
        .kind::<Reverse>()
        .kind::<Expire>()
        .kind::<Import>();
}
