//! From `?` to an outcome.

use counterfoil_intent::{Outcome, Refusal, Reply};

/// Runs the body of an `apply`, so that a refusal can be returned with `?`.
pub(crate) fn outcome(apply: impl FnOnce() -> Result<Reply, Refusal>) -> Outcome {
    match apply() {
        Ok(reply) => Outcome::Accepted(reply),
        Err(refusal) => Outcome::Refused(refusal),
    }
}
