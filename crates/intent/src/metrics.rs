//! What the lanes count.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use counterfoil_pg::{Class, Verdict};

/// Upper bounds of the histogram of batch sizes, in intents.
const SIZES: [u64; 8] = [1, 8, 32, 128, 256, 512, 1024, 2000];
/// Upper bounds of the histograms of time, in microseconds.
const TIMES: [u64; 9] = [500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 1_000_000, 10_000_000];

/// A histogram of fixed bounds.
#[derive(Debug)]
struct Histogram<const N: usize> {
    bounds: [u64; N],
    counts: [AtomicU64; N],
    above: AtomicU64,
    sum: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    const fn new(bounds: [u64; N]) -> Self {
        Self {
            bounds,
            counts: [const { AtomicU64::new(0) }; N],
            above: AtomicU64::new(0),
            sum: AtomicU64::new(0),
        }
    }

    fn observe(&self, value: u64) {
        self.sum.fetch_add(value, Relaxed);
        match self.bounds.iter().position(|bound| value <= *bound) {
            Some(i) => self.counts[i].fetch_add(1, Relaxed),
            None => self.above.fetch_add(1, Relaxed),
        };
    }

    /// Writes the series of one lane. `units` of what is counted make one of what is shown.
    fn render(&self, out: &mut String, name: &str, lane: usize, units: f64) {
        let mut total = 0;
        #[allow(clippy::cast_precision_loss, reason = "a metric")]
        let shown = |value: u64| value as f64 / units;
        for (bound, count) in self.bounds.iter().zip(&self.counts) {
            total += count.load(Relaxed);
            let _ = writeln!(out, "{name}_bucket{{lane=\"{lane}\",le=\"{}\"}} {total}", shown(*bound));
        }
        total += self.above.load(Relaxed);
        let _ = writeln!(out, "{name}_bucket{{lane=\"{lane}\",le=\"+Inf\"}} {total}");
        let _ = writeln!(out, "{name}_sum{{lane=\"{lane}\"}} {}", shown(self.sum.load(Relaxed)));
        let _ = writeln!(out, "{name}_count{{lane=\"{lane}\"}} {total}");
    }
}

const CLASSES: [(Class, &str); 7] = [
    (Class::Retry, "retry"),
    (Class::Reconnect, "reconnect"),
    (Class::Reprepare, "reprepare"),
    (Class::MissingPartition, "missing_partition"),
    (Class::Unique, "unique"),
    (Class::Data, "data"),
    (Class::Other, "other"),
];
const VERDICTS: [(Verdict, &str); 3] = [
    (Verdict::Committed, "committed"),
    (Verdict::RolledBack, "rolled_back"),
    (Verdict::Unknown, "unknown"),
];

/// Counters of one lane. They only ever go up; depths are read from the queue.
#[derive(Debug)]
pub struct LaneMetrics {
    batch_size: Histogram<8>,
    batch_time: Histogram<9>,
    commit_time: Histogram<9>,
    failures: [AtomicU64; 7],
    verdicts: [AtomicU64; 3],
    detours: AtomicU64,
    bisections: AtomicU64,
    failed: AtomicU64,
    turned_away: AtomicU64,
}

impl LaneMetrics {
    pub(crate) const fn new() -> Self {
        Self {
            batch_size: Histogram::new(SIZES),
            batch_time: Histogram::new(TIMES),
            commit_time: Histogram::new(TIMES),
            failures: [const { AtomicU64::new(0) }; 7],
            verdicts: [const { AtomicU64::new(0) }; 3],
            detours: AtomicU64::new(0),
            bisections: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            turned_away: AtomicU64::new(0),
        }
    }

    pub(crate) fn batch(&self, intents: usize, took: Duration) {
        self.batch_size.observe(intents as u64);
        self.batch_time.observe(micros(took));
    }
    pub(crate) fn commit(&self, took: Duration) {
        self.commit_time.observe(micros(took));
    }
    /// The time of every COMMIT so far, together.
    pub(crate) fn committing(&self) -> Duration {
        Duration::from_micros(self.commit_time.sum.load(Relaxed))
    }
    pub(crate) fn verdict(&self, verdict: Verdict) {
        let at = VERDICTS
            .iter()
            .position(|(one, _)| *one == verdict)
            .expect("every verdict is listed");
        self.verdicts[at].fetch_add(1, Relaxed);
    }
    pub(crate) fn failure(&self, class: Class) {
        let at = CLASSES
            .iter()
            .position(|(one, _)| *one == class)
            .expect("every class is listed");
        self.failures[at].fetch_add(1, Relaxed);
    }
    pub(crate) fn detour(&self) {
        self.detours.fetch_add(1, Relaxed);
    }
    pub(crate) fn bisection(&self) {
        self.bisections.fetch_add(1, Relaxed);
    }
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Relaxed);
    }
    pub(crate) fn turned_away(&self) {
        self.turned_away.fetch_add(1, Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What a lane holds at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct Depth {
    pub waiting: usize,
    pub aside: usize,
}

/// The metrics of all lanes, to be rendered.
#[derive(Debug)]
pub struct Metrics<'a> {
    pub(crate) lanes: Vec<(Depth, &'a LaneMetrics)>,
}

impl Metrics<'_> {
    /// Appends the Prometheus text format.
    pub fn render(&self, out: &mut String) {
        self.gauge(
            out,
            "counterfoil_lane_waiting_intents",
            "Intents waiting in the lane.",
            |depth| depth.waiting,
        );
        self.gauge(
            out,
            "counterfoil_lane_aside_tenants",
            "Tenants served outside the lane, since somebody holds a row of theirs.",
            |depth| depth.aside,
        );
        self.histogram(out, "counterfoil_batch_intents", "Intents in a batch.", 1.0, |lane| {
            &lane.batch_size
        });
        self.histogram(
            out,
            "counterfoil_batch_seconds",
            "Time of a batch, from taking it to its answers.",
            1e6,
            |lane| &lane.batch_time,
        );
        self.histogram(out, "counterfoil_commit_seconds", "Time of COMMIT.", 1e6, |lane| {
            &lane.commit_time
        });
        self.counter(
            out,
            "counterfoil_lane_detours_total",
            "Times a tenant left its lane.",
            |lane| &lane.detours,
        );
        self.counter(
            out,
            "counterfoil_batch_bisections_total",
            "Batches halved to find an intent that is bad, too slow, or held up by somebody else.",
            |lane| &lane.bisections,
        );
        self.counter(
            out,
            "counterfoil_intents_failed_total",
            "Intents answered 500.",
            |lane| &lane.failed,
        );
        self.counter(
            out,
            "counterfoil_intents_turned_away_total",
            "Intents answered 429.",
            |lane| &lane.turned_away,
        );
        head(
            out,
            "counterfoil_transactions_total",
            "counter",
            "Transactions of the lanes, by what became of them.",
        );
        for (i, (_, lane)) in self.lanes.iter().enumerate() {
            for ((_, name), count) in VERDICTS.iter().zip(&lane.verdicts) {
                let count = count.load(Relaxed);
                let _ = writeln!(
                    out,
                    "counterfoil_transactions_total{{lane=\"{i}\",verdict=\"{name}\"}} {count}"
                );
            }
        }
        head(
            out,
            "counterfoil_batch_failures_total",
            "counter",
            "Attempts that failed, by what was done next.",
        );
        for (i, (_, lane)) in self.lanes.iter().enumerate() {
            for ((_, name), count) in CLASSES.iter().zip(&lane.failures) {
                let count = count.load(Relaxed);
                let _ = writeln!(
                    out,
                    "counterfoil_batch_failures_total{{lane=\"{i}\",class=\"{name}\"}} {count}"
                );
            }
        }
    }

    fn gauge(&self, out: &mut String, name: &str, help: &str, value: impl Fn(&Depth) -> usize) {
        head(out, name, "gauge", help);
        for (i, (depth, _)) in self.lanes.iter().enumerate() {
            let _ = writeln!(out, "{name}{{lane=\"{i}\"}} {}", value(depth));
        }
    }

    fn counter(&self, out: &mut String, name: &str, help: &str, value: impl Fn(&LaneMetrics) -> &AtomicU64) {
        head(out, name, "counter", help);
        for (i, (_, lane)) in self.lanes.iter().enumerate() {
            let _ = writeln!(out, "{name}{{lane=\"{i}\"}} {}", value(lane).load(Relaxed));
        }
    }

    fn histogram<const N: usize>(
        &self,
        out: &mut String,
        name: &str,
        help: &str,
        units: f64,
        value: impl Fn(&LaneMetrics) -> &Histogram<N>,
    ) {
        head(out, name, "histogram", help);
        for (i, (_, lane)) in self.lanes.iter().enumerate() {
            value(lane).render(out, name, i, units);
        }
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
}
