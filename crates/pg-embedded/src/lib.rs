//! A PostgreSQL that Counterfoil brings along: finds or fetches the programs, makes a cluster,
//! starts it, and stops it.
//!
//! **Owns** the *cluster folder* and everything in it:
//!
//! ```text
//! counterfoil.lock   who uses the cluster now (flock), and the mark that the folder is ours
//! password           the superuser's password, mode 0600
//! pgdata/            PostgreSQL's data directory, with our counterfoil.conf included
//! log/, startup.log  the server's log (seven days), and what it said before that log was open
//! run/               its Unix socket, where the path is short enough for one
//! ```
//!
//! **Invariants**
//!
//! - At most one process holds a cluster folder. The lock is taken before anything is read and
//!   held until the [`Running`] is dropped; the kernel lets go of it when the holder is killed.
//! - A half-made cluster is never seen: it is made beside its place and renamed into it.
//! - A postmaster is only called ours when a process of that id works in our data directory. A pid
//!   file proves nothing: after a restart of a container its number often belongs to someone else.
//! - PostgreSQL never runs as root, and fsync is only ever off for a cluster that asked for it.
//! - Nothing waits without a limit.
//!
//! **Must not know** what is kept in the database: no schema, no role but the superuser.
//!
//! Every call blocks; from async code use `tokio::task::spawn_blocking`.

mod binaries;
mod cluster;
mod command;
mod error;
mod lock;
mod package;
mod postmaster;
mod running;
mod tune;
mod user;

pub use binaries::{Binaries, OLDEST, Version};
pub use cluster::{Cluster, Options};
pub use error::{Error, Result};
pub use lock::Lock;
pub use package::default_cache;
pub use running::{Mode, Running};

/// The superuser that every cluster is made with.
pub const SUPERUSER: &str = "postgres";
