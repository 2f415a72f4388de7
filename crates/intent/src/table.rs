//! Tables as a batch sees them: what can be made, locked, loaded and saved, set by set.

use std::future::Future;
use std::hash::Hash;

use counterfoil_pg::{Error, Scope, TenantId, Tid, Tx};
use jiff::Timestamp;

/// The order in which rows are locked everywhere: (class, tenant, row key).
///
/// A new class goes where its rows are locked in relation to the others; nothing else in the
/// program decides a locking order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockClass {
    Asset,
    Account,
    Hold,
    Transfer,
    /// For kinds of examples and tests; last, so that it cannot come between the others.
    Example,
}

/// What an intent wants of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Loaded, not locked: for what never changes once it is there.
    Read,
    /// Locked, then loaded. A missing row stays missing.
    Change,
    /// Made where it is missing, locked, then loaded as missing: [`crate::Books::create`] fills it.
    Make,
}

/// Whether to wait for rows that somebody else holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// `SKIP LOCKED`: the lane never waits for a row.
    Skip,
    /// Wait as long as the transaction's lock timeout allows.
    Queue,
}

/// What a batch did to the rows of one table. Every list is sorted by (tenant, key).
#[derive(Debug)]
pub struct Changes<'a, T: Table> {
    /// Rows that were there and changed: write the columns that can change.
    pub update: Vec<(TenantId, &'a T::Key, &'a T::Row)>,
    /// Where the rows of `update` lie, one for one: this transaction has them locked.
    pub places: Vec<Tid>,
    /// Rows made by this transaction and now created: write every column.
    pub fill: Vec<(TenantId, &'a T::Key, &'a T::Row)>,
    /// Rows with an id of our own that nobody else can know: insert plainly.
    pub insert: Vec<(TenantId, &'a T::Key, &'a T::Row)>,
    /// Rows made by this transaction that nobody came to create: delete.
    pub unmake: Vec<(TenantId, &'a T::Key)>,
}

/// Rows that a transaction has locked, with their places.
pub type Locked<T> = Vec<(TenantId, <T as Table>::Key, Tid)>;

/// Rows as they are loaded.
pub type Loaded<T> = Vec<(TenantId, <T as Table>::Key, <T as Table>::Row)>;

/// A table whose rows are locked, loaded, changed in memory and written back once a batch.
///
/// Each function is one set-based statement (two at the most); keys come sorted and without
/// repeats. The scope has been set on the transaction and is passed for the statements that bind it.
pub trait Table: Send + Sync + Sized + 'static {
    const CLASS: LockClass;
    /// For log lines and the lock-order tests.
    const NAME: &'static str;
    type Key: Clone + Ord + Hash + Send + Sync + std::fmt::Debug;
    type Row: Clone + Send + Sync + std::fmt::Debug;

    /// Makes the missing rows among `keys` (`INSERT … ORDER BY key ON CONFLICT DO NOTHING
    /// RETURNING`) with placeholder values, and returns the keys it made.
    ///
    /// Tables whose rows always have a fresh id never see [`Mode::Make`]; the default makes nothing.
    fn make(
        scope: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Self::Key)],
    ) -> impl Future<Output = Result<Vec<(TenantId, Self::Key)>, Error>> + Send {
        let _ = (scope, tx, keys);
        std::future::ready(Ok(Vec::new()))
    }

    /// Locks the rows that exist, in key order, `FOR NO KEY UPDATE`, and returns those it locked,
    /// with the place (`ctid`) of each. Nothing but locking happens in this statement: what it would
    /// read is older than the lock.
    fn lock(
        scope: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Self::Key)],
        wait: Wait,
    ) -> impl Future<Output = Result<Locked<Self>, Error>> + Send;

    /// Loads the rows that exist, as of `now` (the database's clock, read after locking). A row that
    /// this transaction has locked comes with its place, which is the cheaper way to find it.
    fn load(
        scope: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Self::Key, Option<Tid>)],
        now: Timestamp,
    ) -> impl Future<Output = Result<Loaded<Self>, Error>> + Send;

    /// Writes back what changed.
    fn save(scope: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A table that is only ever appended to.
pub trait AppendTable: Send + Sync + Sized + 'static {
    type Row: Send + Sync + std::fmt::Debug;

    /// Inserts the rows with one set-based statement, sorted by their key.
    fn insert(scope: &Scope, tx: &Tx, rows: &[(TenantId, Self::Row)])
    -> impl Future<Output = Result<(), Error>> + Send;
}
