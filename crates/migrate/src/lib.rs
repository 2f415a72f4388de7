//! Changes to the database itself.
//!
//! **Owns** what `counterfoil init` makes (the database, the five roles and their limits, the schema
//! `counterfoil`), the table of applied migrations, and the way a migration is applied: short locks,
//! asked for again and again, in a transaction that also records it.
//!
//! **Invariants.** Everything here can be run twice, and by two processes at once, with the effect of
//! once. A migration is applied whole and recorded, or not at all. A database that a newer program
//! has migrated, or whose recorded migrations are not the ones we know, is left alone.
//!
//! **Must not know** what is in the migrations: every crate brings its own list of (name, SQL).

mod error;
mod init;
mod roles;
mod run;
mod store;

pub use error::Error;
pub use init::{Existing, Failure, Init, init, init_after};
pub use run::{State, Status, require, run, status};
pub use store::ALL as STATEMENTS;

/// Migrations of this crate. [`run`] puts them first by itself; nobody needs to name them.
pub const MIGRATIONS: &[(&str, &str)] = &[(
    "migrate/0001_migration",
    include_str!("../migrations/0001_migration.sql"),
)];
