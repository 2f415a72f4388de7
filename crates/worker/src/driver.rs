//! The loop.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng as _;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinHandle};

use crate::metrics::{Metrics, Snapshot};
use crate::step::{Progress, Step, StepError};

/// The pause after a first failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_millis(100);

/// The longest pause after failures.
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

/// Wakes a driver before its timer does.
#[derive(Debug, Clone)]
pub struct Signal {
    notify: Arc<Notify>,
}

impl Signal {
    /// Asks for a pass. Cheap, and never waits; many calls during one pass ask for one more pass.
    pub fn wake(&self) {
        self.notify.notify_one();
    }
}

/// A running loop over one [`Step`]. Dropping it stops the loop, cutting a pass off where it is; to
/// let the pass end, call [`Driver::shutdown`].
#[derive(Debug)]
pub struct Driver {
    name: &'static str,
    signal: Signal,
    stop: watch::Sender<bool>,
    metrics: Arc<Metrics>,
    task: AbortOnDrop<()>,
}

/// A pass that had not ended when its time to shut down was over, and was cut off.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the pass of {name} had not ended within {} ms and was cut off; what it had not committed will be done again", .bound.as_millis())]
pub struct Overrun {
    pub name: &'static str,
    pub bound: Duration,
}

impl Driver {
    /// Starts the loop on the current runtime; its first pass begins at once.
    pub fn start(step: impl Step) -> Self {
        let name = step.name();
        let notify = Arc::new(Notify::new());
        let (stop, stopped) = watch::channel(false);
        let metrics = Arc::new(Metrics::new(name));
        let each = Loop {
            step: Arc::new(step),
            notify: notify.clone(),
            stopped,
            metrics: metrics.clone(),
        };
        let task = AbortOnDrop(tokio::spawn(each.run()));
        Self {
            name,
            signal: Signal { notify },
            stop,
            metrics,
            task,
        }
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    #[must_use]
    pub fn signal(&self) -> Signal {
        self.signal.clone()
    }

    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.metrics.snapshot()
    }

    /// A handle on the figures that outlives the driver.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// Ends the loop. A pass under way is waited for up to `bound`, then cut off.
    pub async fn shutdown(mut self, bound: Duration) -> Result<(), Overrun> {
        self.stop.send_replace(true);
        match tokio::time::timeout(bound, &mut self.task.0).await {
            Ok(_) => Ok(()),
            Err(_) => Err(Overrun { name: self.name, bound }),
        }
    }
}

/// Ends all of them at the same time, within one bound; returns those that had to be cut off.
pub async fn shutdown_all(drivers: Vec<Driver>, bound: Duration) -> Vec<Overrun> {
    for driver in &drivers {
        driver.stop.send_replace(true);
    }
    let deadline = Instant::now() + bound;
    let mut overruns = Vec::new();
    for driver in drivers {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Err(overrun) = driver.shutdown(left).await {
            overruns.push(Overrun { bound, ..overrun });
        }
    }
    overruns
}

struct Loop<S> {
    step: Arc<S>,
    notify: Arc<Notify>,
    stopped: watch::Receiver<bool>,
    metrics: Arc<Metrics>,
}

impl<S: Step> Loop<S> {
    async fn run(mut self) {
        while !*self.stopped.borrow() {
            match self.pass().await {
                Ok(Progress::More) => tokio::task::yield_now().await,
                Ok(Progress::Idle) => {
                    let rest = jittered(self.step.interval());
                    tokio::select! {
                        () = self.notify.notified() => {}
                        () = tokio::time::sleep(rest) => {}
                        _ = self.stopped.changed() => {}
                    }
                }
                // Signals wait as well: a step that fails at every call, called by every request,
                // would otherwise spin. The permit is kept, so none is lost.
                Err(failures) => {
                    let pause = jittered(backoff(failures));
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        _ = self.stopped.changed() => {}
                    }
                }
            }
        }
    }

    /// One pass; on failure, how many there have been in a row.
    async fn pass(&self) -> Result<Progress, u32> {
        let step = self.step.clone();
        let name = step.name();
        let began = Instant::now();
        // A task of its own, so that a panic ends the pass and not the loop; bound to this future,
        // so that cutting the loop off cuts the pass off as well.
        let mut pass = AbortOnDrop(tokio::spawn(async move { step.run().await }));
        let ended = (&mut pass.0).await;
        let took = began.elapsed();
        let (error, panicked): (StepError, bool) = match ended {
            Ok(Ok(progress)) => {
                self.metrics.succeeded(took);
                tracing::trace!(step = name, ?took, ?progress, "pass done");
                return Ok(progress);
            }
            Ok(Err(error)) => (error, false),
            Err(join) => (what_happened(join).into(), true),
        };
        let in_a_row = self.metrics.failed(took, panicked);
        tracing::error!(
            step = name,
            ?took,
            in_a_row,
            panicked,
            error = chain(&*error),
            "pass failed"
        );
        Err(in_a_row)
    }
}

/// A task that ends with whoever started it.
#[derive(Debug)]
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn what_happened(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(payload) => format!("panicked: {}", panic_text(&*payload)),
        Err(_) => "cancelled: the runtime is shutting down".to_owned(),
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("with something other than text")
}

/// An error and its sources on one line: Display of our errors never repeats its source.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        text.push_str(": ");
        text.push_str(&source.to_string());
        next = source.source();
    }
    text
}

/// 100 ms, 200 ms, 400 ms … 30 s.
fn backoff(failures_in_a_row: u32) -> Duration {
    let doublings = failures_in_a_row.saturating_sub(1).min(16);
    FIRST_BACKOFF.saturating_mul(1 << doublings).min(LONGEST_BACKOFF)
}

/// Up to a tenth longer or shorter, so that servers started together drift apart.
fn jittered(base: Duration) -> Duration {
    base.mul_f64(rand::rng().random_range(0.9..1.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_bound() {
        assert_eq!(backoff(1), Duration::from_millis(100));
        assert_eq!(backoff(2), Duration::from_millis(200));
        assert_eq!(backoff(5), Duration::from_millis(1600));
        assert_eq!(backoff(10), LONGEST_BACKOFF);
        assert_eq!(backoff(u32::MAX), LONGEST_BACKOFF);
    }

    #[test]
    fn jitter_stays_within_a_tenth() {
        let base = Duration::from_secs(10);
        for _ in 0..1000 {
            let drawn = jittered(base);
            assert!(
                drawn >= Duration::from_secs(9) && drawn <= Duration::from_secs(11),
                "{drawn:?}"
            );
        }
        assert_eq!(jittered(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn the_log_names_every_source_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("the outer thing failed")]
        struct Outer(#[source] std::fmt::Error);
        assert_eq!(
            chain(&Outer(std::fmt::Error)),
            format!("the outer thing failed: {}", std::fmt::Error)
        );
    }
}
