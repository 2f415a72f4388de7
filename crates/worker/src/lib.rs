//! Every background loop of the product.
//!
//! **Owns** [`Step`], one idempotent pass of some work, and [`Driver`], the loop that runs it: on a
//! timer, and on a [`Signal`] when there is reason to believe that work has just arrived.
//!
//! **Invariants.** One driver runs one pass at a time. A step that fails or panics is logged, counted
//! and run again later; it never ends its loop. A signal is never lost: one that comes during a pass
//! starts another. A signal is only a hint, and the timer alone is enough for correctness, because
//! the server that signals may die. A pass that is under way at shutdown is waited for, within a
//! bound.
//!
//! **Must not know** what a step does.

mod driver;
mod metrics;
mod step;

pub use driver::{Driver, Overrun, Signal, shutdown_all};
pub use metrics::{Metrics, Snapshot, render};
pub use step::{Progress, Step, StepError};
