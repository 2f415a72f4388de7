//! What a driver has done so far.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The figures of one driver; read them with [`Metrics::snapshot`].
#[derive(Debug)]
pub struct Metrics {
    name: &'static str,
    figures: Mutex<Figures>,
}

#[derive(Debug, Default)]
struct Figures {
    runs: u64,
    failures: u64,
    panics: u64,
    failures_in_a_row: u32,
    last_duration: Option<Duration>,
    last_success: Option<Instant>,
}

/// The figures of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub name: &'static str,
    /// Passes that have ended, failed ones included.
    pub runs: u64,
    /// Passes that ended in an error or a panic.
    pub failures: u64,
    /// Those of `failures` that were panics.
    pub panics: u64,
    pub failures_in_a_row: u32,
    pub last_duration: Option<Duration>,
    /// How long ago the last pass succeeded; `None` if none has.
    pub since_success: Option<Duration>,
}

impl Metrics {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            name,
            figures: Mutex::default(),
        }
    }

    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let figures = self.figures.lock();
        Snapshot {
            name: self.name,
            runs: figures.runs,
            failures: figures.failures,
            panics: figures.panics,
            failures_in_a_row: figures.failures_in_a_row,
            last_duration: figures.last_duration,
            since_success: figures.last_success.map(|at| at.elapsed()),
        }
    }

    pub(crate) fn succeeded(&self, duration: Duration) {
        let mut figures = self.figures.lock();
        figures.runs += 1;
        figures.failures_in_a_row = 0;
        figures.last_duration = Some(duration);
        figures.last_success = Some(Instant::now());
    }

    /// Counts a failure; returns how many there have been in a row.
    pub(crate) fn failed(&self, duration: Duration, panicked: bool) -> u32 {
        let mut figures = self.figures.lock();
        figures.runs += 1;
        figures.failures += 1;
        figures.panics += u64::from(panicked);
        figures.failures_in_a_row = figures.failures_in_a_row.saturating_add(1);
        figures.last_duration = Some(duration);
        figures.failures_in_a_row
    }
}

/// Appends the figures of drivers in the text format of Prometheus.
pub fn render(snapshots: impl IntoIterator<Item = Snapshot>, out: &mut String) {
    let snapshots: Vec<_> = snapshots.into_iter().collect();
    let mut family = |name: &str, kind: &str, help: &str, value: &dyn Fn(&Snapshot) -> Option<f64>| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for one in &snapshots {
            if let Some(value) = value(one) {
                let _ = writeln!(out, "{name}{{step=\"{}\"}} {value}", one.name);
            }
        }
    };
    #[allow(clippy::cast_precision_loss, reason = "a metric")]
    let count = |count: u64| Some(count as f64);
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    family(
        "counterfoil_step_runs_total",
        "counter",
        "Passes that have ended.",
        &|one| count(one.runs),
    );
    family(
        "counterfoil_step_failures_total",
        "counter",
        "Passes that ended in an error or a panic.",
        &|one| count(one.failures),
    );
    family(
        "counterfoil_step_last_seconds",
        "gauge",
        "Time of the last pass.",
        &|one| seconds(one.last_duration),
    );
    family(
        "counterfoil_step_since_success_seconds",
        "gauge",
        "Time since a pass last succeeded.",
        &|one| seconds(one.since_success),
    );
}
