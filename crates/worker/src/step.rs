//! What a driver runs.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

/// Why a pass failed: anything that can be logged.
pub type StepError = Box<dyn Error + Send + Sync>;

/// Whether a pass left work behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is left for now: wait for the timer or a signal.
    Idle,
    /// A bounded piece was done and there may be more: run again at once.
    More,
}

/// Some work that is done in passes.
///
/// A pass looks at what is there and brings it forward. It must be idempotent, bounded (say
/// [`Progress::More`] rather than work for minutes), and indifferent to other servers that run the
/// same step: it may be cut off anywhere, and may run again at any time.
pub trait Step: Send + Sync + 'static {
    /// A name for logs and metrics: `holds-expire`, `stubs-rotate`.
    fn name(&self) -> &'static str;

    /// How long to rest after a pass that left nothing behind, unless a signal comes.
    fn interval(&self) -> Duration;

    /// One pass.
    fn run(&self) -> impl Future<Output = Result<Progress, StepError>> + Send;
}
