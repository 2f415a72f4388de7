//! The lane: what waits goes into one transaction.
//!
//! Events have no order and change no row, so batches need no locks, and two workers land them side by
//! side: while one commits, the other gathers. Within a batch, and so between batches and servers, ids are
//! inserted in their order: two batches with the same ids wait for each other and never both.

use std::collections::{HashMap, HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use counterfoil_pg::{Class, Database, Error, Role, Scope, TenantId, attempt};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::clock;
use crate::day::{self, Days};
use crate::event::Event;
use crate::fold;
use crate::metrics::Metrics;
use crate::store::{self, New};

/// How the lane is set up. Every field has a stated default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Batches landing at a time, each on a connection: 2.
    pub workers: usize,
    /// Events of one batch at the most, if no single request has more: 4,000.
    pub batch: usize,
    /// Waiting events of one tenant at the most: 20,000.
    pub waiting_per_tenant: usize,
    /// Waiting events at the most: 100,000.
    pub waiting: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 2,
            batch: 4_000,
            waiting_per_tenant: 20_000,
            waiting: 100_000,
        }
    }
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Stored,
    /// It was there before, whatever else came with it then.
    Known,
    /// PostgreSQL would not take it; the log has it under the id.
    Failed {
        id: Uuid,
    },
    /// Too many wait.
    TooMany {
        retry_after: Duration,
    },
    /// Nothing was stored.
    Unavailable {
        reason: &'static str,
    },
    ShuttingDown,
    /// The caller's time was over before its events were begun.
    DeadlinePassed,
    /// The reply to COMMIT was lost: send it again, and what was stored is known.
    Unknown,
}

/// The lane of events. Cheap to clone.
#[derive(Clone)]
pub struct EventLanes(Arc<Inner>);

struct Inner {
    database: Database,
    options: Options,
    days: Arc<Days>,
    metrics: Metrics,
    queue: Mutex<Queue>,
    work: Notify,
    idle: Notify,
}

/// The events of one request.
struct Job {
    events: Vec<Event>,
    since: Instant,
    deadline: Option<Instant>,
    reply: oneshot::Sender<Vec<Answer>>,
}

/// Jobs, by tenant; tenants take turns, a request each.
#[derive(Default)]
struct Queue {
    jobs: HashMap<TenantId, VecDeque<Job>>,
    turns: VecDeque<TenantId>,
    waiting_of: HashMap<TenantId, usize>,
    waiting: usize,
    landing: usize,
    /// Events of the batch that was taken last.
    last: usize,
    /// Nothing more is taken in. Under the same lock as everything else: whoever finds it open has put its job
    /// where a worker finds it before it ends.
    closed: bool,
}

/// Why a job was not taken in.
#[derive(Debug, PartialEq, Eq)]
enum Turned {
    Full,
    Closed,
}

impl Queue {
    fn put(&mut self, tenant: TenantId, job: Job, options: &Options) -> Result<(), Turned> {
        if self.closed {
            return Err(Turned::Closed);
        }
        let own = self.waiting_of.get(&tenant).copied().unwrap_or_default();
        let count = job.events.len();
        // One request always fits where nothing of its tenant waits, however large it is.
        if own > 0 && own + count > options.waiting_per_tenant || self.waiting + count > options.waiting {
            return Err(Turned::Full);
        }
        self.waiting_of.insert(tenant, own + count);
        self.waiting += count;
        let jobs = self.jobs.entry(tenant).or_default();
        if jobs.is_empty() {
            self.turns.push_back(tenant);
        }
        jobs.push_back(job);
        Ok(())
    }

    /// Beside another batch only once half as many wait as that one has: with whatever happens to be there
    /// batches would become smaller and smaller.
    fn take(&mut self, most: usize) -> Vec<Job> {
        let mut taken = Vec::new();
        if self.landing > 0 && self.waiting < (self.last / 2).min(most) {
            return taken;
        }
        let mut events = 0;
        while let Some(tenant) = self.turns.front().copied() {
            let jobs = self.jobs.get_mut(&tenant).expect("who has a turn has a job");
            let next = jobs.front().expect("who has a turn has a job").events.len();
            if events > 0 && events + next > most {
                break;
            }
            self.turns.pop_front();
            let job = jobs.pop_front().expect("who has a turn has a job");
            if jobs.is_empty() {
                self.jobs.remove(&tenant);
            } else {
                self.turns.push_back(tenant);
            }
            events += next;
            let own = self.waiting_of.get_mut(&tenant).expect("who waits is counted");
            *own -= next;
            if *own == 0 {
                self.waiting_of.remove(&tenant);
            }
            taken.push(job);
        }
        self.waiting -= events;
        if !taken.is_empty() {
            self.landing += 1;
            self.last = events;
        }
        taken
    }

    fn is_idle(&self) -> bool {
        self.turns.is_empty() && self.landing == 0
    }
}

impl EventLanes {
    /// Starts the workers on the current runtime.
    #[must_use]
    pub fn start(database: Database, days: Arc<Days>, options: Options) -> Self {
        let inner = Arc::new(Inner {
            database,
            options,
            days,
            metrics: Metrics::default(),
            queue: Mutex::default(),
            work: Notify::new(),
            idle: Notify::new(),
        });
        for _ in 0..inner.options.workers.max(1) {
            tokio::spawn(Arc::clone(&inner).run());
        }
        Self(inner)
    }

    #[must_use]
    pub fn days(&self) -> &Arc<Days> {
        &self.0.days
    }

    /// Stores the events of one request of one tenant. Answers each, in order, when they are durable.
    pub async fn submit(&self, tenant: TenantId, events: Vec<Event>, deadline: Option<Instant>) -> Vec<Answer> {
        let count = events.len();
        if count == 0 {
            return Vec::new();
        }
        let inner = &self.0;
        let (reply, answers) = oneshot::channel();
        let job = Job {
            events,
            since: Instant::now(),
            deadline,
            reply,
        };
        let put = inner.queue.lock().put(tenant, job, &inner.options);
        match put {
            Ok(()) => {}
            Err(Turned::Closed) => return vec![Answer::ShuttingDown; count],
            Err(Turned::Full) => {
                inner.metrics.turned_away.fetch_add(count as u64, Relaxed);
                let retry_after = Duration::from_secs(1);
                return vec![Answer::TooMany { retry_after }; count];
            }
        }
        inner.work.notify_one();
        // The worker that had it has panicked: whether it had committed nobody knows.
        answers.await.unwrap_or_else(|_| vec![Answer::Unknown; count])
    }

    /// Takes nothing more, and waits until what was accepted has landed; whether all of it had by then.
    pub async fn shutdown_by(&self, by: Instant) -> bool {
        self.0.queue.lock().closed = true;
        self.0.work.notify_waiters();
        loop {
            let idle = self.0.idle.notified();
            if self.0.queue.lock().is_idle() {
                return true;
            }
            if tokio::time::timeout_at(by.into(), idle).await.is_err() {
                return false;
            }
        }
    }

    /// Appends the Prometheus text format.
    pub fn render_metrics(&self, out: &mut String) {
        let waiting = self.0.queue.lock().waiting;
        self.0.metrics.render(waiting, out);
    }
}

impl Inner {
    async fn run(self: Arc<Self>) {
        loop {
            let more = self.work.notified();
            let jobs = {
                let mut queue = self.queue.lock();
                let jobs = queue.take(self.options.batch);
                if jobs.is_empty() && queue.closed && queue.turns.is_empty() {
                    return;
                }
                jobs
            };
            if jobs.is_empty() {
                more.await;
                continue;
            }
            // What is left is for the other worker, if it is enough.
            self.work.notify_one();
            let landed = AssertUnwindSafe(self.land(jobs)).catch_unwind().await;
            if landed.is_err() {
                tracing::error!("a batch of events ended in the middle; its callers are told that nobody knows");
            }
            let mut queue = self.queue.lock();
            queue.landing -= 1;
            if queue.is_idle() {
                self.idle.notify_waiters();
            }
            drop(queue);
            // What waits may be enough now, for this worker or the other.
            self.work.notify_one();
        }
    }

    /// Lands a batch and answers its callers.
    async fn land(&self, mut jobs: Vec<Job>) {
        let now = Instant::now();
        for job in jobs.extract_if(.., |job| job.deadline.is_some_and(|deadline| deadline <= now)) {
            let _ = job.reply.send(vec![Answer::DeadlinePassed; job.events.len()]);
        }
        if jobs.is_empty() {
            return;
        }
        let events: Vec<&Event> = jobs.iter().flat_map(|job| &job.events).collect();
        let mut order: Vec<usize> = (0..events.len()).collect();
        // Stable: of one identity twice the first that came is the one.
        order.sort_by_key(|&at| (events[at].tenant, events[at].id));
        let mut answers = vec![Answer::Known; events.len()];
        order.dedup_by_key(|at| (events[*at].tenant, events[*at].id));
        self.land_some(&events, &order, &mut answers).await;
        let mut answers = answers.into_iter();
        for job in jobs {
            self.metrics.lag(job.since.elapsed());
            let own = answers.by_ref().take(job.events.len()).collect();
            // Whoever has gone away finds it known when they ask again.
            let _ = job.reply.send(own);
        }
    }

    /// Lands those events, which are sorted and all different; halves them where one of them is bad.
    async fn land_some(&self, events: &[&Event], order: &[usize], answers: &mut [Answer]) {
        let mut left = vec![order];
        while let Some(order) = left.pop() {
            let batch: Vec<&Event> = order.iter().map(|&at| events[at]).collect();
            match self.store(&batch).await {
                Ok(new) => {
                    self.metrics.batches.fetch_add(1, Relaxed);
                    let mut stored = 0;
                    for &at in order {
                        let event = events[at];
                        if new.as_ref().is_none_or(|new| new.contains(&(event.tenant, event.id))) {
                            answers[at] = Answer::Stored;
                            stored += 1;
                        }
                    }
                    self.metrics.stored.fetch_add(stored, Relaxed);
                    self.metrics.known.fetch_add(order.len() as u64 - stored, Relaxed);
                }
                Err(error) if error.class() == Class::Data && order.len() > 1 => {
                    let (first, second) = order.split_at(order.len() / 2);
                    left.extend([second, first]);
                }
                Err(error) => {
                    let answer = self.failed(&error, order.len());
                    for &at in order {
                        answers[at] = answer.clone();
                    }
                }
            }
        }
    }

    fn failed(&self, error: &Error, count: usize) -> Answer {
        let cause = error as &dyn std::error::Error;
        if matches!(error, Error::Unknown { .. }) {
            return Answer::Unknown;
        }
        if error.class() == Class::Data {
            let id = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
            self.metrics.failed.fetch_add(count as u64, Relaxed);
            tracing::error!(%id, error = cause, "PostgreSQL would not take an event");
            return Answer::Failed { id };
        }
        tracing::warn!(error = cause, count, "events could not be stored");
        Answer::Unavailable {
            reason: match error.class() {
                Class::Retry => "conflicts with other transactions did not end",
                Class::Reconnect => "PostgreSQL cannot be reached, or takes no writes",
                _ => "PostgreSQL refused the transaction",
            },
        }
    }

    /// One transaction. `None`: all were new.
    async fn store(&self, batch: &[&Event]) -> Result<Option<HashSet<(TenantId, Uuid)>>, Error> {
        let scope = Scope::tenants(batch.iter().map(|event| event.tenant).collect());
        let mut reread = false;
        loop {
            let (here, spilled) = self.by_partition(batch).await;
            let (scope, here, spilled) = (&scope, &here, &spilled);
            let pool = self.database.pool(Role::Lane);
            let slot = fold::slot(clock::now());
            let run = pool.run(scope, |tx| {
                attempt(async move {
                    let insert = async {
                        match here.as_slice() {
                            [] => Ok(New::Only(Vec::new())),
                            here => store::insert(scope, tx, here, slot).await,
                        }
                    };
                    let spill = async {
                        match spilled.as_slice() {
                            [] => Ok(New::Only(Vec::new())),
                            spilled => store::spill(scope, tx, spilled).await,
                        }
                    };
                    futures_util::try_join!(insert, spill)
                })
            });
            match run.await {
                Ok((New::All, _)) if spilled.is_empty() => return Ok(None),
                Ok((inserted, aside)) => {
                    if !spilled.is_empty() {
                        self.metrics.spilled.fetch_add(spilled.len() as u64, Relaxed);
                        self.days.miss();
                    }
                    let new = ids(inserted, here).chain(ids(aside, spilled));
                    return Ok(Some(new.collect()));
                }
                // A partition that we believed in is gone.
                Err(error) if error.class() == Class::MissingPartition && !reread => {
                    reread = true;
                    self.days.refresh(&self.database).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Those whose partition is there, and those whose is not; looks again before it says so.
    async fn by_partition<'e>(&self, batch: &[&'e Event]) -> (Vec<&'e Event>, Vec<&'e Event>) {
        let missing = |event: &&Event| !self.days.has(day::of(event.id));
        if batch.iter().any(missing)
            && let Err(error) = self.days.refresh(&self.database).await
        {
            // Whoever lands the batch meets it again.
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "days of events could not be read"
            );
        }
        batch.iter().copied().partition(|event| !missing(event))
    }
}

fn ids(new: New, of: &[&Event]) -> impl Iterator<Item = (TenantId, Uuid)> {
    let all = if new == New::All {
        of.iter().map(|event| (event.tenant, event.id)).collect()
    } else {
        Vec::new()
    };
    let only = match new {
        New::All => Vec::new(),
        New::Only(only) => only,
    };
    all.into_iter().chain(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(count: usize) -> (Job, oneshot::Receiver<Vec<Answer>>) {
        let (reply, answers) = oneshot::channel();
        let event = Event {
            tenant: TenantId(1),
            id: Uuid::nil(),
            at: jiff::Timestamp::UNIX_EPOCH,
            stream: "web".into(),
            subject: "/".into(),
            actor: None,
            properties: None,
        };
        let job = Job {
            events: vec![event; count],
            since: Instant::now(),
            deadline: None,
            reply,
        };
        (job, answers)
    }

    fn put(queue: &mut Queue, tenant: i64, count: usize) -> bool {
        let options = Options {
            waiting_per_tenant: 100,
            waiting: 250,
            ..Options::default()
        };
        queue.put(TenantId(tenant), job(count).0, &options).is_ok()
    }

    fn sizes(jobs: &[Job]) -> Vec<usize> {
        jobs.iter().map(|job| job.events.len()).collect()
    }

    #[test]
    fn tenants_take_turns_and_a_giant_does_not_fill_a_batch_before_a_small_one_is_in_it() {
        let mut queue = Queue::default();
        for count in [40, 41, 19] {
            assert!(put(&mut queue, 1, count));
        }
        assert!(put(&mut queue, 2, 1) && put(&mut queue, 3, 2));
        assert_eq!(sizes(&queue.take(50)), [40, 1, 2]);
        queue.landing = 0;
        assert_eq!(sizes(&queue.take(50)), [41]);
        queue.landing = 0;
        assert_eq!(sizes(&queue.take(50)), [19]);
        queue.landing = 0;
        assert!(queue.is_idle() && queue.waiting_of.is_empty());
    }

    #[test]
    fn a_tenant_and_all_together_have_so_much_room_and_one_request_always_fits() {
        let mut queue = Queue::default();
        assert!(put(&mut queue, 1, 200), "alone it fits, whatever its size");
        assert!(!put(&mut queue, 1, 1));
        assert!(put(&mut queue, 2, 50) && !put(&mut queue, 3, 1));
    }

    #[test]
    fn what_comes_after_the_end_is_turned_away_and_leaves_nothing_behind() {
        let mut queue = Queue::default();
        assert!(put(&mut queue, 1, 10));
        queue.closed = true;
        assert!(!put(&mut queue, 2, 1));
        assert_eq!(queue.take(100).len(), 1);
        queue.landing = 0;
        assert!(queue.is_idle() && queue.waiting_of.is_empty());
    }

    #[test]
    fn beside_a_batch_the_next_waits_for_half_as_many() {
        let mut queue = Queue::default();
        put(&mut queue, 1, 10);
        assert_eq!(queue.take(100).len(), 1);
        put(&mut queue, 1, 4);
        assert!(queue.take(100).is_empty());
        put(&mut queue, 1, 1);
        assert_eq!(queue.take(100).len(), 2);
        // With nothing beside it whatever is there is enough.
        queue.landing = 0;
        put(&mut queue, 1, 1);
        assert_eq!(queue.take(100).len(), 1);
    }
}
