//! Tables as a batch sees them: what can be made, locked, loaded and saved, set by set.

use std::future::Future;
use std::hash::Hash;

use counterfoil_pg::{Error, Scope, TenantId, Tx};
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
    /// What the rows of `update` were when they were loaded, one for one.
    pub before: Vec<&'a T::Row>,
    /// Rows made by this transaction and now created: write every column.
    pub fill: Vec<(TenantId, &'a T::Key, &'a T::Row)>,
    /// Rows with an id of our own that nobody else can know: insert plainly.
    pub insert: Vec<(TenantId, &'a T::Key, &'a T::Row)>,
    /// Rows made by this transaction that nobody came to create: delete.
    pub unmake: Vec<(TenantId, &'a T::Key)>,
}

/// Keys of rows.
pub type Keys<T> = Vec<(TenantId, <T as Table>::Key)>;

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
    /// Whether rows have a revision, a number that grows with every change of theirs.
    ///
    /// A batch that changes no rows but of such tables does not lock them first: it loads them, and
    /// `save` updates only what still has the revision it was loaded with. That spares a locking
    /// statement, which costs more than the update. Where two servers work on the same rows the
    /// second finds another revision, and its lane locks for a while.
    const REVISED: bool = false;

    /// A row that this lane has just committed, as loading it at `now` would give it; `None` where
    /// only loading can tell. A batch is loaded while the one before it is under way, and takes
    /// over what that one changes.
    fn carried(_row: &Self::Row, _now: Timestamp) -> Option<Self::Row> {
        None
    }

    /// Makes the missing rows among `keys` (`INSERT … ORDER BY key ON CONFLICT DO NOTHING
    /// RETURNING`) with placeholder values, and returns the keys it made.
    ///
    /// Tables whose rows always have a fresh id never see [`Mode::Make`]; the default makes nothing.
    fn make(
        scope: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Self::Key)],
    ) -> impl Future<Output = Result<Keys<Self>, Error>> + Send {
        let _ = (scope, tx, keys);
        std::future::ready(Ok(Vec::new()))
    }

    /// Locks the rows that exist, in key order, `FOR NO KEY UPDATE`, and returns those it locked.
    /// Nothing but locking happens in this statement: what it would read is older than the lock.
    fn lock(
        scope: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Self::Key)],
        wait: Wait,
    ) -> impl Future<Output = Result<Keys<Self>, Error>> + Send;

    /// Loads the rows that exist, as of `now`: the database's clock, read after locking, or before
    /// the load where nothing is locked.
    fn load(
        scope: &Scope,
        tx: &Tx,
        keys: &[(TenantId, Self::Key)],
        now: Timestamp,
    ) -> impl Future<Output = Result<Loaded<Self>, Error>> + Send;

    /// Locks rows that were loaded without a lock and did not change, so that what was decided by
    /// them stays true until COMMIT. Must not wait (`SKIP LOCKED`): it comes after the updates of
    /// `save`, so out of the locking order. [`Error::Stale`] where a row is held by somebody else or
    /// no longer has the revision it was loaded with.
    ///
    /// Tables that are [`Self::REVISED`] must have it; others never see it.
    fn confirm(
        scope: &Scope,
        tx: &Tx,
        rows: &[(TenantId, &Self::Key, &Self::Row)],
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = (scope, tx, rows);
        async {
            unreachable!(
                "{} has revisions and does not say how its rows are confirmed",
                Self::NAME
            )
        }
    }

    /// Writes back what changed. A table that is [`Self::REVISED`] updates in the order of the keys,
    /// which is then the locking order, and gives [`Error::Stale`] where a row no longer has the
    /// revision it was loaded with.
    fn save(scope: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A table that is only ever appended to.
pub trait AppendTable: Send + Sync + Sized + 'static {
    type Row: Send + Sync + std::fmt::Debug;

    /// Inserts the rows with one set-based statement, sorted by their key.
    fn insert(scope: &Scope, tx: &Tx, rows: &[(TenantId, Self::Row)])
    -> impl Future<Output = Result<(), Error>> + Send;
}
