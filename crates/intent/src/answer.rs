//! What a caller is told.

use std::time::Duration;

use jiff::Timestamp;
use uuid::Uuid;

use crate::stub::Stub;

/// The answer to one submission.
#[derive(Debug, Clone)]
pub enum Answer {
    /// The stub as this submission left it: 201, or 409 when it says refused.
    First(Stub),
    /// The stub was there before: the same status, flagged as a replay.
    Replayed(Stub),
    /// The key was used with another body: 422, nothing done.
    Mismatch { field: String },
    /// The key is a UUIDv7 older than stub retention and has no stub: whether it ever had one
    /// can no longer be told. 409 without a stub.
    KeyTooOld { retention: Duration },
    /// The key is a UUIDv7 of more than an hour ahead: 400.
    KeyAhead,
    /// Too many of the tenant's intents, or of the lane's, are waiting: 429.
    TooMany { retry_after: Duration },
    /// The caller's deadline passed before its intent was started: 408, nothing done.
    DeadlinePassed,
    /// Somebody else holds a row of this tenant for longer than the lock timeout: 503, no stub.
    Busy,
    /// The transaction could not be brought to an end: 503, no stub, nothing done.
    Unavailable { reason: &'static str },
    /// This one intent makes its kind panic or PostgreSQL raise an error nobody foresaw: 500, no
    /// stub; the id is in the log.
    Failed { id: Uuid },
    /// COMMIT was sent and its fate could not be learnt: 504. Ask for the stub.
    Unknown,
    /// The server is on its way down and did not take the intent: 503.
    ShuttingDown,
}

impl Answer {
    /// The same answer for an intent whose COMMIT once got no reply: what would claim that nothing
    /// was done may not be said.
    pub(crate) fn after_unknown(self) -> Self {
        match self {
            Self::First(_) | Self::Replayed(_) | Self::Mismatch { .. } => self,
            _ => Self::Unknown,
        }
    }
}

/// What is known about a key.
#[derive(Debug, Clone)]
pub enum StubState {
    Found(Stub),
    /// Waiting or being worked on in this server.
    InFlight,
    /// No stub as of this time: it is safe to send the intent again under the same key.
    None {
        as_of: Timestamp,
    },
}
