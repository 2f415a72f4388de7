//! The closed loop: so many callers, each sends its next request when the last is answered.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::histogram::Histogram;
use crate::postgres::{Control, Mark};

/// How long each part of a side's run takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
}

impl Times {
    /// The warm-up is a fifth of the measured time, from one to five seconds.
    pub(crate) fn of(seconds: u32) -> Self {
        let seconds = seconds.max(1);
        Self {
            warm_up: Duration::from_secs(u64::from(seconds.div_ceil(5).clamp(1, 5))),
            measured: Duration::from_secs(u64::from(seconds)),
        }
    }
}

/// What came of one request.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) accepted: u64,
    /// 429: too many waiting.
    pub(crate) turned_away: u64,
    pub(crate) failed: u64,
    /// What the first failure said.
    pub(crate) first: Option<String>,
}

impl Done {
    pub(crate) const ONE: Self = Self {
        accepted: 1,
        turned_away: 0,
        failed: 0,
        first: None,
    };
}

/// One caller.
pub(crate) trait Caller: Send + 'static {
    /// Sends one request and waits for its answer.
    fn call(&mut self) -> impl Future<Output = Result<Done>> + Send;
}

/// What all callers together saw.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Of requests answered in the measured time.
    pub(crate) times: Histogram,
    pub(crate) in_time: u64,
    /// Over the whole run, warm-up and end included.
    pub(crate) all: Done,
}

impl Tally {
    fn new() -> Self {
        Self {
            times: Histogram::new(),
            in_time: 0,
            all: Done::default(),
        }
    }

    fn add(&mut self, done: Done, took: Duration, in_time: bool) {
        if in_time {
            self.times.add(took);
            self.in_time += done.accepted;
        }
        self.all.accepted += done.accepted;
        self.all.turned_away += done.turned_away;
        self.all.failed += done.failed;
        if self.all.first.is_none() {
            self.all.first = done.first;
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Clock {
    from: Instant,
    until: Instant,
}

/// A finished side: what callers saw, and what the server did meanwhile.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) before: Mark,
    pub(crate) after: Mark,
}

/// Ends the load when the run is given up.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs callers on a thread of their own until the measured time is over; reads the server's
/// counters at both ends of it.
pub(crate) async fn measure<C, F>(
    control: &Control,
    times: Times,
    connect: impl FnOnce() -> F + Send + 'static,
) -> Result<Measured>
where
    C: Caller,
    F: Future<Output = Result<Vec<C>>>,
{
    let (started, clock) = oneshot::channel();
    // Callers stay connected until the last mark: a backend that ends takes its processor time along.
    let (marking, marked) = oneshot::channel::<()>();
    let stop = Stop(Arc::new(AtomicBool::new(false)));
    let stopped = Arc::clone(&stop.0);
    let load = tokio::task::spawn_blocking(move || {
        // One thread is enough for every load here, and leaves the other core alone.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| Error::Connection {
            whom: "the system",
            source,
        })?;
        runtime.block_on(async move {
            let callers = connect().await?;
            let from = Instant::now() + times.warm_up;
            let clock = Clock {
                from,
                until: from + times.measured,
            };
            let _ = started.send(clock);
            let (tally, callers) = drive(callers, clock, &stopped).await?;
            let _ = marked.await;
            drop(callers);
            Ok::<_, Error>(tally)
        })
    });
    let marks = async {
        let clock = clock.await.ok()?;
        tokio::time::sleep_until(clock.from.into()).await;
        let before = control.mark().await;
        tokio::time::sleep_until(clock.until.into()).await;
        let after = control.mark().await;
        drop(marking);
        Some((before, after))
    };
    // A load that fails early is heard of at once: its clock is dropped, or its thread ends.
    tokio::pin!(marks, load);
    let (tally, marks) = tokio::select! {
        tally = &mut load => {
            let tally = tally.map_err(|_| Error::Thread)??;
            (tally, marks.await)
        }
        marks = &mut marks => (load.await.map_err(|_| Error::Thread)??, marks),
    };
    let (before, after) = marks.ok_or(Error::Thread)?;
    drop(stop);
    Ok(Measured {
        tally: checked(tally)?,
        before: before?,
        after: after?,
    })
}

/// A tally of which nothing failed.
fn checked(tally: Tally) -> Result<Tally> {
    let tried = tally.all.accepted + tally.all.failed;
    if tally.all.failed > 0 {
        let first = tally.all.first.unwrap_or_default();
        return Err(Error::NotAccepted {
            count: tally.all.failed,
            of: tried,
            first,
        });
    }
    if tally.in_time == 0 {
        return Err(Error::Nothing);
    }
    Ok(tally)
}

async fn drive<C: Caller>(callers: Vec<C>, clock: Clock, stopped: &Arc<AtomicBool>) -> Result<(Tally, Vec<C>)> {
    // All on one thread, so that the mutex is never waited for.
    let tally = Arc::new(Mutex::new(Tally::new()));
    let mut running: JoinSet<Result<C>> = JoinSet::new();
    for mut caller in callers {
        let (tally, stopped) = (Arc::clone(&tally), Arc::clone(stopped));
        running.spawn(async move {
            let mut start = Instant::now();
            while start < clock.until && !stopped.load(Ordering::Relaxed) {
                let done = caller.call().await?;
                let pause = done.turned_away > 0;
                let end = Instant::now();
                let in_time = (clock.from..clock.until).contains(&end);
                tally
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .add(done, end - start, in_time);
                start = end;
                if pause {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    start = Instant::now();
                }
            }
            Ok(caller)
        });
    }
    let mut callers = Vec::with_capacity(running.len());
    while let Some(ended) = running.join_next().await {
        callers.push(ended.map_err(|_| Error::Thread)??);
    }
    let tally = Arc::into_inner(tally).ok_or(Error::Thread)?;
    Ok((tally.into_inner().unwrap_or_else(PoisonError::into_inner), callers))
}
