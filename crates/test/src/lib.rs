//! What tests stand on: databases that are theirs alone, clusters they may kill, and a proxy that
//! cuts connections where it hurts.
//!
//! **Owns** the template databases, their names, and the servers that `scripts/with-servers` starts.
//!
//! **Invariants.** Tests speak to the database as the five roles, never as a superuser, unless the
//! superuser is what they are about. Nothing here sleeps in order to hit a moment: the proxy says
//! when a moment has come, and holds it. What a test made is gone when it ends.
//!
//! **Must not** be linked into the product: it is a dev-dependency. It may use every crate below
//! the server.
//!
//! ```no_run
//! # async fn example() {
//! use counterfoil_test::{Server, database};
//!
//! let test = database(Server::Pg15).await;
//! let tenant = test.tenant("a").await;
//! let proxy = test.proxy().await;
//! let db = test.database_through(&proxy);
//! let lost = proxy.lane().cut_after_commit(1);
//! // … something that commits …
//! lost.fired().await;
//! # }
//! ```

// A test looks from outside as well, as the administrator.
#![allow(clippy::disallowed_methods)]

mod cluster;
mod database;
mod proxy;
mod server;
mod template;
mod tenants;

pub use cluster::TestCluster;
pub use database::{TestDatabase, database, empty_database};
pub use proxy::{Fault, FaultProxy, Faults, Hold, Seen};
pub use server::Server;
pub use template::{PASSWORD, migrations};
