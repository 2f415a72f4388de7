//! The worker of a lane: while one batch lands, the next is looked up and loaded.

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use counterfoil_pg::{Scope, Tx, Verdict};
use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::answer::Answer;
use crate::attempt::{Access, Attempt, Landed, Miss, Ready, Stop};
use crate::batch::{behind, doubt};
use crate::books::Books;
use crate::lane::{Inner, Lane, Options};
use crate::queue::{Pending, weight};
use crate::table::Wait;

/// A batch in its transaction, loaded.
pub(crate) struct Prepared {
    tx: Tx,
    scope: Scope,
    work: Vec<usize>,
    ended: Vec<(usize, Answer)>,
    open: Option<i32>,
    /// `None` where every intent had its answer in a stub.
    ready: Option<Box<Ready>>,
}

impl Prepared {
    pub(crate) fn new(attempt: Attempt<'_>, tx: Tx, ready: Option<Box<Ready>>) -> Self {
        Self {
            tx,
            scope: attempt.scope,
            work: attempt.work,
            ended: attempt.ended,
            open: attempt.open,
            ready,
        }
    }

    /// Applies, writes back, commits.
    pub(crate) async fn land(
        self,
        inner: &Inner,
        at: usize,
        batch: &[Pending],
        turn: &mut Turn,
    ) -> Result<Landed, Stop> {
        let attempt = Attempt {
            inner,
            at,
            scope: self.scope,
            batch,
            work: self.work,
            ended: self.ended,
            open: self.open,
        };
        if let Some(ready) = self.ready {
            return attempt.land(self.tx, ready, turn).await;
        }
        self.tx.rollback().await;
        turn.apply(Arc::new(inner.kinds.books()));
        turn.ended().await?;
        Ok(Landed {
            ended: attempt.ended,
            held: Vec::new(),
            worked: Duration::ZERO,
        })
    }

    fn is_locked(&self) -> bool {
        self.ready.as_ref().is_some_and(|ready| !ready.unlocked)
    }

    async fn discard(self) {
        self.tx.rollback().await;
    }
}

/// How far a batch has come.
#[derive(Default)]
struct Stage {
    /// Its rows, once its intents have been applied.
    books: Option<Arc<Books>>,
    /// It has its rows locked.
    written: bool,
    /// Whether it has landed as it was prepared.
    ended: Option<bool>,
}

/// The place of a batch behind those of its lane that are still under way.
///
/// It is applied once they have been applied, on their rows. It is written once they have been
/// written: its updates then wait for theirs, row by row, where both change a row; the other way
/// round they would overtake them. It is committed once they have been committed.
pub(crate) struct Turn {
    before: Vec<watch::Receiver<Stage>>,
    own: watch::Sender<Stage>,
}

impl Turn {
    fn behind(before: Vec<watch::Receiver<Stage>>) -> Self {
        Self {
            before,
            own: watch::Sender::new(Stage::default()),
        }
    }

    pub(crate) fn alone() -> Self {
        Self::behind(Vec::new())
    }

    /// The rows of the batches before it, first to last.
    pub(crate) async fn applied(&mut self) -> Result<Vec<Arc<Books>>, Stop> {
        let mut books = Vec::with_capacity(self.before.len());
        for before in &mut self.before {
            let stage = reached(before, |stage| stage.books.is_some()).await?;
            books.extend(stage.books.clone());
        }
        Ok(books)
    }

    pub(crate) async fn written(&mut self) -> Result<(), Stop> {
        if let Some(before) = self.before.last_mut() {
            reached(before, |stage| stage.written).await?;
        }
        Ok(())
    }

    pub(crate) async fn ended(&mut self) -> Result<(), Stop> {
        if let Some(before) = self.before.last_mut() {
            reached(before, |stage| stage.ended.is_some()).await?;
        }
        Ok(())
    }

    pub(crate) fn apply(&self, books: Arc<Books>) {
        self.own.send_modify(|stage| stage.books = Some(books));
    }

    pub(crate) fn write(&self) {
        self.own.send_modify(|stage| stage.written = true);
    }

    fn end(&self, landed: bool) {
        self.own.send_modify(|stage| stage.ended = Some(landed));
    }
}

/// Waits for a stage of the batch before; an error once that one has ended otherwise.
async fn reached(
    before: &mut watch::Receiver<Stage>,
    there: impl Fn(&Stage) -> bool,
) -> Result<watch::Ref<'_, Stage>, Stop> {
    let stage = before.wait_for(|stage| stage.ended.is_some() || there(stage)).await;
    // A sender that is gone without a word has panicked.
    stage
        .ok()
        .filter(|stage| stage.ended != Some(false))
        .ok_or(Stop::Behind)
}

/// How large batches are, by weight: what takes about [`Options::batch_time`].
struct Pace {
    most: usize,
    time: Duration,
    bound: usize,
}

/// A batch is never bounded to less weight than this by the time it takes: the fixed cost of a
/// commit would otherwise shrink batches until there is nothing but fixed cost.
const SMALLEST_BOUND: usize = 64;

impl Pace {
    fn new(options: &Options) -> Self {
        Self {
            most: options.batch,
            time: options.batch_time,
            bound: options.batch.min(SMALLEST_BOUND),
        }
    }

    /// The bound follows the time batches take, slowly; a batch that was not full says little about
    /// larger ones. `worked` is without COMMIT: that waits for the disk, which takes as long for a
    /// small batch, and to count it would make batches smaller the slower the disk is.
    fn follow(&mut self, weight: usize, worked: Duration) {
        if weight * 2 > self.bound {
            let fits = self.time.as_secs_f64() / worked.as_secs_f64().max(1e-6);
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                clippy::cast_precision_loss
            )]
            let wanted = (weight as f64 * fits.min(8.0)) as usize;
            self.bound = ((self.bound * 3 + wanted) / 4).clamp(SMALLEST_BOUND.min(self.most), self.most);
        }
    }
}

/// How many batches of a lane are written and committed at a time: one is updated and committed while
/// the next is applied and inserts.
const LANDING: usize = 2;

/// A batch that is landing.
struct Landing {
    size: usize,
    weight: usize,
    stage: watch::Receiver<Stage>,
    task: Option<JoinHandle<Came>>,
    /// Nothing before its end, and nothing if it panicked.
    came: Option<Came>,
}

/// What came of a batch that was prepared.
enum Came {
    /// It has landed; what is held up by somebody else's locks.
    Landed { held: Vec<Pending>, worked: Duration },
    /// It has to be tried from the beginning.
    Stopped(Vec<Pending>, Option<Miss>),
}

impl Landing {
    /// Waits for its end. Cancelled, it can be waited for again.
    async fn wait(&mut self) {
        let Some(task) = &mut self.task else { return };
        let ended = task.await;
        self.task = None;
        match ended {
            Ok(came) => self.came = Some(came),
            Err(error) => {
                tracing::error!(%error, "a lane's batch ended in the middle; its callers are told that nobody knows");
            }
        }
    }
}

/// Nothing waits on a timer. One batch is updated and committed; meanwhile the next is applied and
/// inserts, and the one after that gathers, has its stubs looked up and its rows loaded. So
/// PostgreSQL has something to do while this server computes and while the disk is waited for, on
/// more than one core. Each takes over what those before it have changed and is committed after
/// them. Whatever goes wrong, those behind it roll back, and all of them begin again, one by one and
/// with locks.
pub(crate) async fn run(inner: Arc<Inner>, at: usize) {
    let mut worker = Worker {
        pace: Pace::new(&inner.options),
        landing: VecDeque::new(),
        inner,
        at,
    };
    // Whether the last batch needed locks. Such a one is looked up for nothing beside others.
    let mut locks = false;
    loop {
        let Some(batch) = worker.gather().await else {
            return;
        };
        let mut batch = worker.inner.sift(at, batch, false);
        if locks {
            worker.reap(0, &mut batch).await;
        }
        // What was under way before its rows were loaded, also if it has ended by the time that they are.
        let before: Vec<_> = worker.landing.iter().map(|landing| landing.stage.clone()).collect();
        let alone = before.is_empty();
        let mut prepared = None;
        if !batch.is_empty() && worker.lane().trusts() {
            prepared = worker.look_ahead(&batch, alone).await;
            locks = prepared.as_ref().is_none_or(Prepared::is_locked);
        }
        let beside = if prepared.is_some() { LANDING - 1 } else { 0 };
        let undisturbed = worker.reap(beside, &mut batch).await;
        match prepared {
            Some(prepared) if undisturbed => worker.start(batch, prepared, before),
            Some(prepared) => {
                prepared.discard().await;
                worker.land(batch).await;
            }
            None => worker.land(batch).await,
        }
    }
}

struct Worker {
    inner: Arc<Inner>,
    at: usize,
    pace: Pace,
    /// In the order in which they are committed.
    landing: VecDeque<Landing>,
}

impl Worker {
    fn lane(&self) -> &Lane {
        self.inner.lane(self.at)
    }

    /// Waits for the next batch. Beside others, until half as many wait as the last one has: with
    /// whatever happens to be there batches would become smaller and smaller. `None`: there will be
    /// nothing more.
    async fn gather(&mut self) -> Option<Vec<Pending>> {
        loop {
            let enough = self.landing.back().map_or(1, |landing| landing.size / 2);
            let enough = enough.clamp(1, self.pace.bound);
            let inner = Arc::clone(&self.inner);
            let lane = inner.lane(self.at);
            lane.wanted.store(enough, Ordering::Relaxed);
            {
                let mut queue = lane.queue.lock();
                if queue.waiting() >= enough {
                    let batch = queue.take(self.pace.bound);
                    if !batch.is_empty() {
                        return Some(batch);
                    }
                }
                // Under the lock of the queue: whoever puts something in looks under it, too.
                if self.landing.is_empty() && inner.is_closing() && queue.is_idle() {
                    return None;
                }
            }
            match self.landing.front_mut() {
                None => lane.work.notified().await,
                Some(landing) => tokio::select! {
                    biased;
                    () = landing.wait() => {
                        let beside = self.landing.len() - 1;
                        self.reap(beside, &mut Vec::new()).await;
                    }
                    () = lane.work.notified() => {}
                },
            }
        }
    }

    /// Waits until no more than `beside` batches are landing. Returns whether all went as prepared.
    ///
    /// If not, nothing is landing any more. Tenants whose rows are held by somebody else leave the
    /// lane, and with them, in order, what there is of them in the batches behind and in `next`.
    async fn reap(&mut self, beside: usize, next: &mut Vec<Pending>) -> bool {
        while self.landing.len() > beside {
            let Some(mut landing) = self.landing.pop_front() else {
                break;
            };
            landing.wait().await;
            match landing.came {
                Some(Came::Landed { held, worked }) if held.is_empty() => {
                    self.pace.follow(landing.weight, worked);
                }
                came => {
                    self.recover(came, next).await;
                    return false;
                }
            }
        }
        true
    }

    async fn recover(&mut self, first: Option<Came>, next: &mut Vec<Pending>) {
        // All of them first: those behind may have rows locked until they have rolled back.
        let mut came: Vec<_> = first.into_iter().collect();
        while let Some(mut landing) = self.landing.pop_front() {
            landing.wait().await;
            came.extend(landing.came);
        }
        let mut held = Vec::new();
        for came in came {
            match came {
                Came::Landed { held: more, .. } => held.extend(more),
                Came::Stopped(batch, miss) => {
                    let rest = behind(&mut held, batch);
                    // What was missed was missed by all of the batch.
                    let miss = miss.filter(|_| held.is_empty());
                    held.extend(self.inner.bring_down(self.at, rest, Wait::Skip, miss).await);
                }
            }
        }
        *next = behind(&mut held, std::mem::take(next));
        self.inner.put_all_aside(self.at, held);
    }

    async fn look_ahead(&self, batch: &[Pending], alone: bool) -> Option<Prepared> {
        let prepare = self.inner.prepare(self.at, batch, Access::Ahead { alone });
        // A panic in a kind's `refs` or `needs` is met again, and answered, without looking ahead.
        match AssertUnwindSafe(prepare).catch_unwind().await {
            Ok(Ok(prepared)) => Some(prepared),
            Ok(Err(Stop::Behind)) | Err(_) => None,
            Ok(Err(Stop::Missed(miss))) => {
                // The next attempt answers for what it meets itself; what is not met again would leave no trace.
                let error = &miss.error as &dyn std::error::Error;
                tracing::warn!(error, "a batch could not be prepared, and begins again");
                None
            }
        }
    }

    /// Lands a batch in a task of its own, beside which the next is prepared.
    fn start(&mut self, mut batch: Vec<Pending>, prepared: Prepared, before: Vec<watch::Receiver<Stage>>) {
        let (inner, at, size, weight) = (Arc::clone(&self.inner), self.at, batch.len(), weight(&batch));
        let mut turn = Turn::behind(before);
        let stage = turn.own.subscribe();
        let task = tokio::spawn(async move {
            let start = Instant::now();
            let landed = AssertUnwindSafe(prepared.land(&inner, at, &batch, &mut turn)).catch_unwind();
            let came = match landed.await {
                Ok(Ok(landed)) => {
                    turn.end(true);
                    inner.lane(at).metrics.batch(size, start.elapsed());
                    let worked = landed.worked;
                    let held = inner.settle(at, batch, landed);
                    return Came::Landed { held, worked };
                }
                Ok(Err(Stop::Missed(miss))) => {
                    if miss.verdict == Verdict::Unknown {
                        // Here, where it is learnt: whatever part of it is put aside or sifted out before
                        // it is tried again must not be told that nothing was done.
                        doubt(&mut batch);
                    }
                    Came::Stopped(batch, Some(miss))
                }
                // A panic is met again, and answered, where a batch can be bisected.
                Ok(Err(Stop::Behind)) | Err(_) => Came::Stopped(batch, None),
            };
            turn.end(false);
            came
        });
        self.landing.push_back(Landing {
            size,
            weight,
            stage,
            task: Some(task),
            came: None,
        });
    }

    /// Lands a batch from the beginning, with locks, and nothing beside it.
    async fn land(&mut self, batch: Vec<Pending>) {
        if batch.is_empty() {
            return;
        }
        let (size, weight) = (batch.len(), weight(&batch));
        let (start, committing) = (Instant::now(), self.lane().metrics.committing());
        self.inner.land(self.at, batch, Wait::Skip).await;
        let took = start.elapsed();
        let metrics = &self.lane().metrics;
        metrics.batch(size, took);
        let worked = took.saturating_sub(metrics.committing() - committing);
        self.pace.follow(weight, worked);
    }
}
