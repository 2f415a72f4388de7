//! Lanes: what combines waiting intents into one transaction.

use std::hash::{BuildHasher, RandomState};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counterfoil_pg::{Database, Error, Role, Scope, TenantId};
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};

use crate::ahead;
use crate::answer::{Answer, StubState};
use crate::generation::Generations;
use crate::intent::Intent;
use crate::key::Key;
use crate::kind::Kinds;
use crate::metrics::{Depth, LaneMetrics, Metrics};
use crate::queue::{Bounds, Pending, Queue, Series, send};
use crate::store;
use crate::table::Wait;

/// How the lanes are set up. Every field has a stated default.
#[derive(Debug, Clone)]
pub struct Options {
    /// Lanes, each with up to three connections, since its batches overlap: 4.
    pub lanes: usize,
    /// Weight of one batch at the most: 2,000. An intent weighs one for each effect and one more for each
    /// KiB of their bodies.
    pub batch: usize,
    /// What the work of a batch should take, COMMIT aside, by which its size is bounded: 20 ms.
    pub batch_time: Duration,
    /// Waiting intents of one tenant at the most: 2,000.
    pub waiting_per_tenant: usize,
    /// Waiting intents of one lane at the most: 20,000.
    pub waiting_per_lane: usize,
    /// Tenants of all lanes that wait for foreign locks at a time, each on a connection of its own: 8.
    pub detours: usize,
    /// How long a tenant outside its lane waits for a foreign lock: 5 s.
    pub lock_timeout: Duration,
    /// How long a lane waits for somebody else's row: for a foreign uncommitted insert of one that it
    /// makes or inserts, and for one it updates without having locked it first. 50 ms.
    pub make_timeout: Duration,
    /// How long it is tried to reach PostgreSQL again, or to learn the fate of a COMMIT: 10 s.
    pub reconnect: Duration,
    /// Attempts of one batch at the most: 8.
    pub attempts: u32,
    /// How long shutdown waits for what was accepted: 30 s.
    pub drain: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            lanes: 4,
            batch: 2_000,
            batch_time: Duration::from_millis(20),
            waiting_per_tenant: 2_000,
            waiting_per_lane: 20_000,
            detours: 8,
            lock_timeout: Duration::from_secs(5),
            make_timeout: Duration::from_millis(50),
            reconnect: Duration::from_secs(10),
            attempts: 8,
            drain: Duration::from_secs(30),
        }
    }
}

pub(crate) struct Lane {
    pub(crate) queue: Mutex<Queue>,
    pub(crate) work: Notify,
    /// How many intents have to wait before it is worth to wake the lane: more than one while a
    /// batch is under way, so that the next is not a small one.
    pub(crate) wanted: AtomicUsize,
    pub(crate) metrics: LaneMetrics,
    /// How many batches more lock their rows before they load them.
    wary: AtomicU32,
    /// The open generation when it was last looked; [`i32::MIN`] before.
    open: AtomicI32,
}

/// After somebody else was met at the rows of a lane, this many batches lock before they load. A
/// batch that finds its rows changed has worked for nothing, and one that finds them locked waits.
const WARY: u32 = 64;

impl Lane {
    /// Whether a batch may load its rows without locking them.
    pub(crate) fn trusts(&self) -> bool {
        self.wary
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_err()
    }

    pub(crate) fn beware(&self) {
        self.wary.store(WARY, Ordering::Relaxed);
    }

    /// The generations in which the keys of honest callers are: the open one and its neighbours.
    pub(crate) fn near(&self) -> RangeInclusive<i32> {
        let open = self.open.load(Ordering::Relaxed);
        open.saturating_sub(1)..=open.saturating_add(1)
    }

    pub(crate) fn remember_open(&self, open: Option<i32>) {
        self.open.store(open.unwrap_or(i32::MIN), Ordering::Relaxed);
    }
}

pub(crate) struct Inner {
    pub(crate) kinds: Kinds,
    pub(crate) database: Database,
    pub(crate) generations: Generations,
    pub(crate) options: Options,
    lanes: Vec<Lane>,
    detours: Semaphore,
    hasher: RandomState,
    closing: AtomicBool,
}

/// The door to the lanes of this process. Cheap to clone.
#[derive(Clone)]
pub struct Lanes {
    inner: Arc<Inner>,
}

impl Lanes {
    /// Starts the lanes' workers.
    #[must_use]
    pub fn start(database: Database, kinds: Kinds, generations: Generations, options: Options) -> Self {
        let bounds = Bounds {
            per_tenant: options.waiting_per_tenant,
            per_lane: options.waiting_per_lane,
        };
        let lanes = (0..options.lanes.max(1)).map(|_| Lane {
            queue: Mutex::new(Queue::new(bounds)),
            work: Notify::new(),
            metrics: LaneMetrics::new(),
            wanted: AtomicUsize::new(1),
            wary: AtomicU32::new(0),
            open: AtomicI32::new(i32::MIN),
        });
        let inner = Arc::new(Inner {
            lanes: lanes.collect(),
            detours: Semaphore::new(options.detours),
            hasher: RandomState::new(),
            closing: AtomicBool::new(false),
            kinds,
            database,
            generations,
            options,
        });
        for at in 0..inner.lanes.len() {
            tokio::spawn(ahead::run(Arc::clone(&inner), at));
        }
        Self { inner }
    }

    #[must_use]
    pub fn kinds(&self) -> &Kinds {
        &self.inner.kinds
    }

    #[must_use]
    pub fn generations(&self) -> Generations {
        self.inner.generations
    }

    #[must_use]
    pub fn options(&self) -> &Options {
        &self.inner.options
    }

    /// Hands intents to the lanes and waits for their answers, in order. Intents of one tenant are
    /// worked on in the order given. Dropping the future does not take back what was handed over.
    pub async fn submit(&self, intents: Vec<Intent>) -> Vec<Answer> {
        let mut waiting = Vec::with_capacity(intents.len());
        // All of a request have the same.
        let mut deadline = intents.iter().filter_map(|intent| intent.deadline).max();
        let mut tenants = Vec::new();
        if deadline.is_some() {
            tenants.extend(intents.iter().map(|intent| intent.tenant));
            tenants.dedup();
        }
        {
            let mut full = false;
            let many = intents.len() > 1;
            let mut series: Option<(TenantId, Series)> = None;
            let mut intents = intents.into_iter().peekable();
            while let Some(first) = intents.peek() {
                let at = self.inner.lane_of(first.tenant);
                let lane = &self.inner.lanes[at];
                let mut queue = lane.queue.lock();
                // One lock for a run of intents of the same lane: requests are of one tenant.
                while let Some(intent) = intents.next_if(|next| self.inner.lane_of(next.tenant) == at) {
                    // Requests are of one tenant. What our own workers send of many, one after
                    // another, does not depend on each other.
                    let tenant = intent.tenant;
                    if many && series.as_ref().is_none_or(|(of, _)| *of != tenant) {
                        series = Some((tenant, Series::of_many()));
                    }
                    let series = series.as_ref().map(|(_, series)| series.clone()).unwrap_or_default();
                    waiting.push(self.push(&mut queue, lane, intent, series, &mut full));
                }
                let enough = queue.waiting() >= lane.wanted.load(Ordering::Relaxed);
                drop(queue);
                if enough {
                    lane.work.notify_one();
                }
            }
        }
        if waiting.iter().all(Result::is_err) {
            // A caller that is turned away again and again waits for nothing else, and would keep its
            // thread from the lanes that make room for it.
            tokio::task::yield_now().await;
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for one in waiting {
            answers.push(match one {
                Ok(mut reply) => {
                    let in_time = match deadline {
                        Some(by) => tokio::time::timeout_at(by.into(), &mut reply).await.ok(),
                        None => None,
                    };
                    let answer = match in_time {
                        Some(answer) => answer,
                        None => {
                            // The lane looks at deadlines when it takes intents, and it may be stuck.
                            if deadline.take().is_some() {
                                self.expire(&tenants);
                            }
                            reply.await
                        }
                    };
                    answer.unwrap_or(Answer::Unknown)
                }
                Err(answer) => answer,
            });
        }
        answers
    }

    fn expire(&self, tenants: &[TenantId]) {
        let mut replies = Vec::new();
        for tenant in tenants {
            let lane = &self.inner.lanes[self.inner.lane_of(*tenant)];
            lane.queue.lock().expire(*tenant, Instant::now(), &mut replies);
            // Who waited behind one of them with the same key may have taken its place.
            lane.work.notify_one();
        }
        send(replies);
    }

    fn push(
        &self,
        queue: &mut Queue,
        lane: &Lane,
        intent: Intent,
        series: Series,
        full: &mut bool,
    ) -> Result<oneshot::Receiver<Answer>, Answer> {
        if self.inner.is_closing() {
            return Err(Answer::ShuttingDown);
        }
        // Once one intent of an array finds no room, the rest is not taken either: a later one
        // must not land before an earlier one that is told to come again.
        if !*full {
            let (reply, answer) = oneshot::channel();
            match queue.push(Pending {
                intent,
                origin: rand::random(),
                unknown: false,
                series,
                reply,
            }) {
                Ok(()) => return Ok(answer),
                Err(_) => *full = true,
            }
        }
        lane.metrics.turned_away();
        Err(Answer::TooMany {
            retry_after: Duration::from_secs(1),
        })
    }

    /// What is known about a key: in this server, then in the database.
    pub async fn stub(&self, tenant: TenantId, key: &Key) -> Result<StubState, Error> {
        let in_flight = || {
            self.inner.lanes[self.inner.lane_of(tenant)]
                .queue
                .lock()
                .in_flight(tenant, key)
        };
        let scope = Scope::Tenant(tenant);
        let tx = self.inner.database.pool(Role::App).begin(&scope).await?;
        let before = in_flight();
        let (stub, as_of) = store::get(&scope, &tx, tenant, key).await?;
        tx.rollback().await;
        Ok(match stub {
            Some(stub) => StubState::Found(stub),
            None if before || in_flight() => StubState::InFlight,
            None => StubState::None { as_of },
        })
    }

    /// What the lanes have counted so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics<'_> {
        let depth = |lane: &Lane| {
            let queue = lane.queue.lock();
            Depth {
                waiting: queue.waiting(),
                aside: queue.aside(),
            }
        };
        Metrics {
            lanes: self
                .inner
                .lanes
                .iter()
                .map(|lane| (depth(lane), &lane.metrics))
                .collect(),
        }
    }

    /// [`Self::shutdown_by`] after [`Options::drain`].
    pub async fn shutdown(&self) -> bool {
        self.shutdown_by(Instant::now() + self.inner.options.drain).await
    }

    /// Takes nothing more, and waits until everything that was accepted has its answer; the lanes
    /// then end. Returns whether all had it by `deadline`.
    pub async fn shutdown_by(&self, deadline: Instant) -> bool {
        self.inner.closing.store(true, Ordering::Release);
        for lane in &self.inner.lanes {
            lane.work.notify_one();
        }
        loop {
            if self.inner.lanes.iter().all(|lane| lane.queue.lock().is_idle()) {
                break true;
            }
            if Instant::now() > deadline {
                break false;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Inner {
    fn lane_of(&self, tenant: TenantId) -> usize {
        let lanes = u64::try_from(self.lanes.len()).expect("lanes are few");
        usize::try_from(self.hasher.hash_one(tenant) % lanes).expect("lanes are few")
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    pub(crate) fn lane(&self, at: usize) -> &Lane {
        &self.lanes[at]
    }

    /// Ends an intent with its answer.
    pub(crate) fn finish(&self, at: usize, ended: Vec<(Pending, Answer)>) {
        let lane = &self.lanes[at];
        let mut woken = false;
        let mut replies = Vec::with_capacity(ended.len());
        {
            let mut queue = lane.queue.lock();
            for (pending, answer) in ended {
                woken |= queue.finish(pending, answer, &mut replies);
            }
        }
        send(replies);
        if woken {
            lane.work.notify_one();
        }
    }

    /// Puts a tenant aside and sees to it that a detour serves it.
    pub(crate) fn put_aside(self: &Arc<Self>, at: usize, tenant: TenantId, batch: Vec<Pending>) {
        let lane = &self.lanes[at];
        if lane.queue.lock().put_aside(tenant, batch) {
            lane.metrics.detour();
            tokio::spawn(detour(Arc::clone(self), at, tenant));
        }
    }
}

/// Serves a tenant of which somebody else holds a row: first in, first out, waiting for locks on a
/// connection of its own, until its line is empty.
async fn detour(inner: Arc<Inner>, at: usize, tenant: TenantId) {
    let lane = inner.lane(at);
    loop {
        let permit = tokio::time::timeout(inner.options.lock_timeout, inner.detours.acquire()).await;
        let batch = lane.queue.lock().take_aside(tenant, inner.options.batch);
        if batch.is_empty() {
            break;
        }
        match permit {
            Ok(_permit) => inner.land(at, batch, Wait::Queue).await,
            // Every detour is taken by tenants that wait for locks themselves.
            Err(_) => inner.finish(at, batch.into_iter().map(|pending| (pending, Answer::Busy)).collect()),
        }
    }
    lane.work.notify_one();
}
