//! Intents that land once.
//!
//! **Owns** intents, keys, stubs and their generations, lanes, books and lock classes.
//!
//! **Invariants.** A stub and the effects it stands for commit together or not at all (promise 1).
//! One key gives one answer (promise 2). Rows are locked in the order (class, tenant, key)
//! everywhere. `apply` is pure: it sees the books, the body, the refs and the context, nothing else.
//!
//! **Must not know** any kind: kinds register ([`Kinds`]).

mod ahead;
mod answer;
mod attempt;
mod batch;
mod books;
mod error;
mod generation;
mod hash;
mod intent;
mod journal;
mod json;
mod key;
mod kind;
mod lane;
mod metrics;
mod pipeline;
mod queue;
mod refs;
mod reply;
mod sheet;
mod store;
mod stub;
mod table;
mod time;

pub use answer::{Answer, StubState};
pub use books::Books;
pub use error::Invalid;
pub use generation::{Generations, Rotation};
pub use hash::Fields;
pub use intent::{Intent, Limits, one_key};
pub use json::{has_nul, json};
pub use key::Key;
pub use kind::{Context, Kind, Kinds, Needs, Plan};
pub use lane::{Lanes, Options};
pub use metrics::{LaneMetrics, Metrics};
pub use refs::{Asks, Fact, Found, Name, Refs};
pub use reply::{Outcome, Refusal, Reply};
pub use store::ALL as STATEMENTS;
pub use stub::Stub;
pub use table::{AppendTable, Changes, Keys, Loaded, LockClass, Mode, Table, Wait};
pub use time::{A_TIME, time};

/// Migrations of this crate, in order.
pub const MIGRATIONS: &[(&str, &str)] = &[("intent/0001_stub", include_str!("../migrations/0001_stub.sql"))];
