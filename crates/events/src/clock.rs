//! The one look at this server's own clock.

use jiff::Timestamp;

/// Now, by this server. For what may be a little off: how late or early an event comes, which is asked
/// before there is a transaction, and which slot a delta is written to. What is stored is the event's own
/// time.
#[must_use]
#[allow(clippy::disallowed_methods, reason = "no row and no order depends on it")]
pub fn now() -> Timestamp {
    Timestamp::now()
}
