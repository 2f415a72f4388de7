//! The door to PostgreSQL.
//!
//! **Owns** pools per role, [`Scope`], [`Tx`], the reading of SQLSTATEs into what to do next
//! ([`Class`]), the retry of whole transactions, outcome rows, and the registry of advisory-lock
//! keys.
//!
//! **Invariants.** Every statement runs inside a [`Tx`], and every `Tx` has a scope. The scope is
//! set with `SET LOCAL` and dies with its transaction. A `Tx` that saw one of its statements fail
//! never commits. What became of a COMMIT is `Committed`, `RolledBack` or `Unknown`; never a guess.
//!
//! **Must not know** any table but its own outcome rows.

mod advisory;
mod class;
// The door itself: everybody else goes through `Tx`.
#[allow(clippy::disallowed_methods)]
mod conn;
mod error;
mod outcome;
mod pool;
mod retry;
mod scope;
mod settings;
mod sql;
mod tls;
#[allow(clippy::disallowed_methods)]
mod tx;
mod whole;

pub use advisory::AdvisoryLock;
pub use class::Class;
pub use conn::connect_admin;
pub use error::{ConnectError, Error};
pub use outcome::{Attempt, Maintained, Token, attempt};
pub use pool::{Database, Durability, Pool};
pub use retry::Backoff;
pub use scope::{Scope, TenantId};
pub use settings::{Pooler, Role, Settings};
pub use sql::Sql;
pub use tls::{Tls, TlsMode};
pub use tx::{CommitError, Tx};
pub use whole::{OutOfRange, Whole};

pub use tokio_postgres::types::{FromSql, ToSql, Type};
pub use tokio_postgres::{Client, Config, Row};

/// What became of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verdict {
    Committed,
    RolledBack,
    Unknown,
}

/// The statements of this crate, one file each.
pub mod statements {
    crate::statements! {
        SCOPE_READ = "scope_read" ();
        ADVISORY_LOCK_SHARED = "advisory_lock_shared" (INT4, INT4);
        ADVISORY_LOCK_EXCLUSIVE = "advisory_lock_exclusive" (INT4, INT4);
        ADVISORY_TRY_EXCLUSIVE = "advisory_try_exclusive" (INT4, INT4);
        OUTCOME_INSERT = "outcome_insert" (UUID);
        OUTCOME_VOID = "outcome_void" (UUID);
        OUTCOME_FIND = "outcome_find" (UUID);
        OUTCOME_PARTITIONS = "outcome_partitions" ();
        CLOCK_TODAY = "clock_today" ();
        DURABILITY = "durability" ();
        SERVER_VERSION = "server_version" ();
        CONNECTIONS_ROOM = "connections_room" ();
    }
}

/// The migrations of this crate, in order: name and text. The schema `counterfoil` and the five
/// roles exist before the first; each runs as `counterfoil_owner`.
pub static MIGRATIONS: &[(&str, &str)] = &[("pg/0001_outcome", include_str!("../migrations/0001_outcome.sql"))];
