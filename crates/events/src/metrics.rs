//! What the event lanes count.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Counters; they only ever go up.
#[derive(Debug, Default)]
pub struct Metrics {
    pub(crate) stored: AtomicU64,
    pub(crate) known: AtomicU64,
    pub(crate) spilled: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    pub(crate) batches: AtomicU64,
    lag_micros: AtomicU64,
    lag_count: AtomicU64,
}

impl Metrics {
    /// From being accepted by the lane to being committed.
    pub(crate) fn lag(&self, lag: Duration) {
        let micros = u64::try_from(lag.as_micros()).unwrap_or(u64::MAX);
        self.lag_micros.fetch_add(micros, Relaxed);
        self.lag_count.fetch_add(1, Relaxed);
    }

    /// Appends the Prometheus text format.
    pub(crate) fn render(&self, waiting: usize, out: &mut String) {
        let counters = [
            ("counterfoil_events_stored_total", "Events stored.", &self.stored),
            (
                "counterfoil_events_known_total",
                "Events that had been stored before.",
                &self.known,
            ),
            (
                "counterfoil_events_spilled_total",
                "Events stored beside their partition, which was not there yet.",
                &self.spilled,
            ),
            (
                "counterfoil_events_failed_total",
                "Events that PostgreSQL would not take, answered 500.",
                &self.failed,
            ),
            (
                "counterfoil_events_turned_away_total",
                "Events answered 429.",
                &self.turned_away,
            ),
            (
                "counterfoil_event_batches_total",
                "Transactions that stored events.",
                &self.batches,
            ),
        ];
        for (name, help, count) in counters {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} counter");
            let _ = writeln!(out, "{name} {}", count.load(Relaxed));
        }
        let name = "counterfoil_events_waiting";
        let _ = writeln!(out, "# HELP {name} Events waiting to be stored.\n# TYPE {name} gauge");
        let _ = writeln!(out, "{name} {waiting}");
        let name = "counterfoil_event_write_lag_seconds";
        let help = "Time from a request's arrival at the lane to its commit.";
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} summary");
        #[allow(clippy::cast_precision_loss, reason = "a metric")]
        let seconds = self.lag_micros.load(Relaxed) as f64 / 1e6;
        let _ = writeln!(out, "{name}_sum {seconds}");
        let _ = writeln!(out, "{name}_count {}", self.lag_count.load(Relaxed));
    }
}
