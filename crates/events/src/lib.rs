//! Events that count once.
//!
//! **Owns** events, their identity and their days, the lane that lands them, what is counted of them in
//! buckets of a quarter of an hour, and the questions that read the counts.
//!
//! **Invariants** (promises 7 and 10). An event and what it adds to the counts commit together or not at
//! all, so for every bucket what is counted (folded and not yet folded) is what is stored. One identity is
//! stored once. Nothing is acknowledged before it is committed, be it to its partition or to the spill
//! table. An actor's name or address is hashed before it gets anywhere.
//!
//! **Must not know** links or pages: they are streams.

mod actor;
mod bucket;
mod clock;
mod codes;
mod day;
mod event;
mod fold;
mod id;
pub mod import;
mod lane;
mod metrics;
pub mod report;
mod store;

pub use actor::Actors;
pub use bucket::BUCKET;
pub use clock::now;
pub use codes::ALL as CODES;
pub use day::{Days, Kept};
pub use event::{Event, Limits, Reader};
pub use fold::Fold;
pub use lane::{Answer, EventLanes, Options};
pub use metrics::Metrics;

pub use store::ALL as STATEMENTS;
/// Finds where promise 7 does not hold: tenant, subject, detail; a hundred at the most. As `counterfoil_ops`.
pub use store::CHECK_COUNTS;

/// Migrations of this crate, in order.
pub const MIGRATIONS: &[(&str, &str)] = &[("events/0001_event", include_str!("../migrations/0001_event.sql"))];
