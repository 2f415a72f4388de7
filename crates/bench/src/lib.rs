//! Benchmarks: the naive way and ours, in one run on one server.
//!
//! **Owns** the load (a PostgreSQL client for the naive way, an HTTP client for ours), the clock,
//! the histogram, and the report.
//!
//! **Invariants**
//!
//! - Both sides run one after the other on the same PostgreSQL with the same settings, durable, each
//!   after a checkpoint, each with the same warm-up and the same measured time.
//! - The naive side is as fast as a careful person would make it: a benchmark that is easy on itself
//!   says nothing.
//! - What clients saw is compared with what the database holds. A run that lost or invented a unit
//!   fails, and prints no figure.
//!
//! **Must not know** how the server does it: ours is what it answers over HTTP, and what SQL finds
//! afterwards.

mod bench;
mod error;
#[allow(clippy::disallowed_methods)]
mod events;
mod histogram;
mod http;
mod load;
mod machine;
// Both speak as a superuser from outside: there is no scope, and no pooler, that `Tx` would see to.
#[allow(clippy::disallowed_methods)]
mod naive;
#[allow(clippy::disallowed_methods)]
mod ours;
#[allow(clippy::disallowed_methods)]
mod postgres;
mod random;
mod report;
mod request;
mod run;
mod server;

pub use bench::NAMES;
pub use error::{Error, Result};
pub use report::{Cpu, Report, Side};
pub use run::{Options, naive_only, run};
pub use server::ServerParams;
