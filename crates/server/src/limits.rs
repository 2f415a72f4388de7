//! What one request may ask of the server.

use std::time::Duration;

/// Limits with their defaults. They are stated in `docs/reference/http.md`.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Bytes of a request's body: 8 MiB.
    pub request: usize,
    /// Intents in one request: 2,000.
    pub items: usize,
    /// Of one intent: the bytes of its body (64 KiB) and the effects of an `all`.
    pub intent: counterfoil_intent::Limits,
    /// Bytes of a request line with its headers: 32 KiB. Their number is hyper's own 100, which it
    /// keeps on the stack; any other number would cost an allocation for every request.
    pub head: usize,
    /// Connections served at once; more wait in the backlog of the listener: 8,192.
    pub connections: usize,
    /// Bytes of request bodies above 64 KiB held in memory at once, over all connections: 64 MiB.
    /// One tenant has half of it at the most, so no request may be larger than that.
    pub in_memory: usize,
    /// Until a request's head is whole; an idle connection is closed after the same time: 60 s.
    pub head_timeout: Duration,
    /// Until a request's body is whole: 30 s.
    pub body_timeout: Duration,
    /// A body that is too large is read and thrown away up to this many bytes, so that the caller
    /// gets to read the answer instead of a connection reset: 256 MiB.
    pub discard: usize,
    /// Running requests are finished for this long after the server was told to stop: 30 s.
    pub drain: Duration,
    /// Reads of one tenant at once that go through every entry of an account: 2.
    pub slow_reads: usize,
    /// Rows of one page of a list: 1,000, and 100 where the caller does not say.
    pub page: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            request: 8 << 20,
            items: 2_000,
            intent: counterfoil_intent::Limits::default(),
            head: 32 << 10,
            connections: 8_192,
            in_memory: 64 << 20,
            head_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            discard: 256 << 20,
            drain: Duration::from_secs(30),
            slow_reads: 2,
            page: 1_000,
        }
    }
}

/// A body of so many bytes is not counted; and a connection reads as much at a time: 64 KiB.
pub(crate) const SMALL: usize = 64 << 10;

/// Rows of a page where the caller does not say.
pub(crate) const PAGE: u32 = 100;

/// The longest `Counterfoil-Timeout`: ten minutes.
pub(crate) const MAX_TIMEOUT_MS: u64 = 600_000;
