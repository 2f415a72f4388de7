//! One batch: one transaction, tried until its fate is known.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_pg::{AdvisoryLock, Class, Error, Role, Scope, TenantId, Tx, Verdict};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use uuid::Uuid;

use crate::answer::Answer;
use crate::books::Books;
use crate::generation::Place;
use crate::intent::Intent;
use crate::key::Key;
use crate::kind::{Context, Needs};
use crate::lane::Inner;
use crate::pipeline;
use crate::queue::{Pending, replay};
use crate::refs::{Asks, Known, Name, Refs};
use crate::reply::Outcome;
use crate::store::{self, KeyArrays};
use crate::stub::Stub;
use crate::table::Wait;

/// Pauses between attempts double from here, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What an attempt came to.
struct Landed {
    ended: Vec<(usize, Answer)>,
    /// Tenants of which a row is held by somebody else.
    held: Vec<TenantId>,
}

/// Why an attempt did not commit.
struct Miss {
    error: Error,
    verdict: Verdict,
    /// Tenants whose making of rows ran into the lock timeout.
    makers: Vec<TenantId>,
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self {
            error,
            verdict: Verdict::RolledBack,
            makers: Vec::new(),
        }
    }
}

/// The attempts at one batch so far.
struct Course {
    wait: Wait,
    attempts: u32,
    started: Instant,
}

enum Next {
    Again,
    Aside(Vec<TenantId>),
    Halve,
    GiveUp(Answer),
}

impl Inner {
    /// Lands a batch: answers all of it, or puts tenants aside.
    pub(crate) async fn land(self: &Arc<Self>, at: usize, batch: Vec<Pending>, wait: Wait) {
        // In the order of the batch. Only now, when no part of it is under way any more, so that a
        // tenant's intents cannot overtake each other between the halves of a bisection.
        let held = self.bring_down(at, batch, wait).await;
        let mut lines: HashMap<TenantId, Vec<Pending>> = HashMap::new();
        for pending in held {
            lines.entry(pending.intent.tenant).or_default().push(pending);
        }
        for (tenant, line) in lines {
            self.put_aside(at, tenant, line);
        }
    }

    /// Tries until everything has its answer or is held up by somebody else's locks; returns the latter.
    fn bring_down(&self, at: usize, batch: Vec<Pending>, wait: Wait) -> BoxFuture<'_, Vec<Pending>> {
        Box::pin(async move {
            let now = Instant::now();
            let (late, mut batch): (Vec<_>, Vec<_>) = batch.into_iter().partition(|pending| {
                !pending.unknown && pending.intent.deadline.is_some_and(|deadline| deadline <= now)
            });
            self.finish(
                at,
                late.into_iter()
                    .map(|pending| (pending, Answer::DeadlinePassed))
                    .collect(),
            );
            let mut course = Course {
                wait,
                attempts: 0,
                started: now,
            };
            let mut held = Vec::new();
            while !batch.is_empty() {
                course.attempts += 1;
                // A panic in a kind's `refs` or `needs`, or in a store, must not end the lane.
                let attempt = AssertUnwindSafe(self.attempt(at, &batch, course.wait)).catch_unwind();
                let next = match attempt.await {
                    Ok(Ok(landed)) => {
                        held.extend(self.settle(at, batch, landed));
                        return held;
                    }
                    Ok(Err(miss)) => self.next(at, &mut course, &mut batch, miss).await,
                    Err(_) if batch.len() > 1 => Next::Halve,
                    Err(panic) => Next::GiveUp(self.panicked(at, &batch[0].intent, &*panic)),
                };
                match next {
                    Next::Again => {}
                    Next::Aside(tenants) => {
                        let (theirs, rest) = split(batch, &tenants);
                        held.extend(theirs);
                        batch = rest;
                    }
                    Next::Halve => {
                        self.lane(at).metrics.bisection();
                        let second = batch.split_off(batch.len() / 2);
                        held.extend(self.bring_down(at, batch, course.wait).await);
                        let tenants: Vec<_> = held.iter().map(|pending| pending.intent.tenant).collect();
                        let (behind, second) = split(second, &tenants);
                        held.extend(behind);
                        held.extend(self.bring_down(at, second, course.wait).await);
                        return held;
                    }
                    Next::GiveUp(answer) => {
                        self.finish(at, batch.into_iter().map(|pending| (pending, answer.clone())).collect());
                        return held;
                    }
                }
            }
            held
        })
    }

    /// Hands out the answers of an attempt that came to its end; returns the intents that have none.
    fn settle(&self, at: usize, batch: Vec<Pending>, landed: Landed) -> Vec<Pending> {
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        for (i, answer) in landed.ended {
            answers[i] = Some(answer);
        }
        let mut ended = Vec::with_capacity(batch.len());
        let mut held = Vec::new();
        for (pending, answer) in batch.into_iter().zip(answers) {
            match answer {
                Some(answer) => ended.push((pending, answer)),
                // Somebody else has a row of this tenant. In a batch that waited for locks: a row has
                // appeared between its locking and its loading, and the next attempt locks that too.
                None => held.push(pending),
            }
        }
        debug_assert!(held.iter().all(|pending| landed.held.contains(&pending.intent.tenant)));
        self.finish(at, ended);
        held
    }

    /// Decides what follows a failed attempt (failure classes, section 4 of the design).
    async fn next(&self, at: usize, course: &mut Course, batch: &mut [Pending], miss: Miss) -> Next {
        let metrics = &self.lane(at).metrics;
        let class = miss.error.class();
        metrics.failure(class);
        if miss.verdict == Verdict::Unknown {
            // The twin may still be at work: from now on wait for its locks, and let its stubs decide.
            course.wait = Wait::Queue;
            for pending in batch.iter_mut() {
                pending.unknown = true;
            }
        }
        let in_time = course.started.elapsed() < self.options.reconnect;
        let in_attempts = course.attempts < self.options.attempts;
        let again = match class {
            // The fate of a COMMIT is asked for as long as it is tried to reach the server.
            _ if miss.verdict == Verdict::Unknown => in_time,
            Class::Retry if course.wait == Wait::Skip && !miss.makers.is_empty() => {
                return Next::Aside(miss.makers);
            }
            Class::Retry if course.wait == Wait::Queue && miss.error.sqlstate() == Some("55P03") => {
                // The lock timeout has passed once already; whoever holds the row still does.
                return Next::GiveUp(Answer::Busy);
            }
            Class::Unique if is_stub(&miss.error) => in_attempts,
            Class::Unique | Class::Data => {
                return if batch.len() > 1 {
                    Next::Halve
                } else {
                    Next::GiveUp(self.poisoned(at, &batch[0], &miss.error))
                };
            }
            Class::Retry | Class::Reprepare => in_attempts,
            Class::Reconnect => in_time,
            Class::MissingPartition => {
                if let Err(error) = self.generations.rotate(&self.database).await {
                    tracing::warn!(%error, "a stub partition is missing and could not be made");
                }
                in_attempts
            }
            Class::Other => false,
        };
        if again {
            pause(course.attempts).await;
            return Next::Again;
        }
        tracing::error!(
            error = &miss.error as &dyn std::error::Error,
            intents = batch.len(),
            "a batch was given up"
        );
        Next::GiveUp(Answer::Unavailable { reason: reason(class) })
    }

    fn poisoned(&self, at: usize, pending: &Pending, error: &Error) -> Answer {
        let id = Uuid::from_u128(rand::random());
        self.lane(at).metrics.failed();
        tracing::error!(
            %id,
            tenant = pending.intent.tenant.0,
            kind = pending.intent.kind_name(),
            error = error as &dyn std::error::Error,
            "PostgreSQL refused the effects of one intent; it has no stub and can be sent again once this is mended"
        );
        Answer::Failed { id }
    }

    fn panicked(&self, at: usize, intent: &Intent, panic: &(dyn std::any::Any + Send)) -> Answer {
        let id = Uuid::from_u128(rand::random());
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("a panic without words");
        self.lane(at).metrics.failed();
        tracing::error!(
            %id,
            tenant = intent.tenant.0,
            kind = intent.kind_name(),
            panic = text,
            "a kind panicked; the intent has no stub and can be sent again once this is mended"
        );
        Answer::Failed { id }
    }

    async fn attempt(&self, at: usize, batch: &[Pending], wait: Wait) -> Result<Landed, Miss> {
        let scope = Scope::tenants(batch.iter().map(|pending| pending.intent.tenant).collect());
        let tx = self.database.pool(Role::Lane).begin(&scope).await?;
        let mut attempt = Attempt {
            inner: self,
            at,
            scope,
            batch,
            work: Vec::new(),
            ended: Vec::new(),
            open: None,
        };
        match attempt.prepare(&tx, wait).await {
            Ok(Some(ready)) => attempt.land(tx, ready).await,
            Ok(None) => {
                tx.rollback().await;
                Ok(Landed {
                    ended: attempt.ended,
                    held: Vec::new(),
                })
            }
            Err(miss) => {
                tx.rollback().await;
                Err(miss)
            }
        }
    }
}

/// A batch in its transaction.
struct Attempt<'a> {
    inner: &'a Inner,
    at: usize,
    scope: Scope,
    batch: &'a [Pending],
    /// Places in the batch of the intents that are still to be applied.
    work: Vec<usize>,
    ended: Vec<(usize, Answer)>,
    open: Option<i32>,
}

/// Locked and loaded.
struct Ready {
    books: Books,
    refs: Refs,
    now: Timestamp,
    held: Vec<TenantId>,
}

impl<'a> Attempt<'a> {
    fn intent(&self, i: usize) -> &'a Intent {
        &self.batch[i].intent
    }

    /// Steps 1 to 3: stubs, refs, needs, making, locking, loading.
    async fn prepare(&mut self, tx: &Tx, wait: Wait) -> Result<Option<Ready>, Miss> {
        self.look_up(tx).await?;
        if self.work.is_empty() {
            return Ok(None);
        }
        let mut refs = self.refs(tx).await?;
        let mut books = self.inner.kinds.books();
        self.needs(&mut books, &mut refs);
        let now = self.lock(tx, &mut books, wait).await?;
        let held = books.load(&self.scope, tx, now).await?;
        if !held.is_empty() {
            self.work
                .retain(|i| held.binary_search(&self.batch[*i].intent.tenant).is_err());
        }
        Ok(Some(Ready { books, refs, now, held }))
    }

    /// Looks for the stubs of all keys; a hit answers its caller.
    async fn look_up(&mut self, tx: &Tx) -> Result<(), Error> {
        let generations = self.inner.generations;
        let mut dated: HashMap<i32, KeyArrays> = HashMap::new();
        let mut others = KeyArrays::default();
        for pending in self.batch {
            let intent = &pending.intent;
            match generations.place(&intent.key) {
                Place::Of(generation) => dated.entry(generation).or_default().push(intent.tenant, &intent.key),
                Place::Open => others.push(intent.tenant, &intent.key),
            }
        }
        if !others.is_empty() {
            // Held to the end of the transaction: rotation must not open another generation
            // between our look for a key that carries no time and our insert of its stub.
            // Awaited by itself, since what it guards must be read by later statements.
            tx.lock_shared(AdvisoryLock::StubGenerations).await?;
        }
        let dated = futures_util::future::join_all(
            dated
                .iter()
                .map(|(generation, keys)| store::find(&self.scope, tx, keys, *generation)),
        );
        let others = async {
            if others.is_empty() {
                Ok(Vec::new())
            } else {
                store::find_any(&self.scope, tx, &others).await
            }
        };
        let (open, dated, others) = futures_util::join!(store::open_generation(&self.scope, tx), dated, others);
        let ((now, open), found) = pipeline::both(open, pipeline::all(dated.into_iter().chain([others])))?;
        self.open = open;
        let stubs: HashMap<(TenantId, Key), Stub> = found
            .into_iter()
            .flatten()
            .map(|stub| ((stub.tenant, stub.key.clone()), stub))
            .collect();
        for (i, pending) in self.batch.iter().enumerate() {
            let intent = &pending.intent;
            let stub = if stubs.is_empty() {
                None
            } else {
                stubs.get(&(intent.tenant, intent.key.clone()))
            };
            match stub {
                Some(stub) => self.ended.push((i, replay(pending, stub))),
                None if generations.too_old(&intent.key, now) => {
                    self.ended.push((
                        i,
                        Answer::KeyTooOld {
                            retention: generations.retention(),
                        },
                    ));
                }
                None if generations.ahead(&intent.key, now) => self.ended.push((i, Answer::KeyAhead)),
                None => self.work.push(i),
            }
        }
        Ok(())
    }

    /// Reads the facts that kinds ask for.
    async fn refs(&self, tx: &Tx) -> Result<Refs, Error> {
        let mut asks = Asks::default();
        for &i in &self.work {
            let intent = self.intent(i);
            asks.tenant = Some(intent.tenant);
            for effect in &intent.effects {
                effect.kind.refs(&*effect.body, &mut asks);
            }
        }
        let mut refs = Refs::default();
        if asks.asked.is_empty() {
            return Ok(refs);
        }
        let here: std::collections::HashSet<(TenantId, &Key)> = self
            .work
            .iter()
            .map(|&i| (self.intent(i).tenant, &self.intent(i).key))
            .collect();
        let mut keys = KeyArrays::default();
        asks.asked.retain(|(fact, tenant, name)| match name {
            // Made, if at all, by an intent of this batch: its rows are among that one's needs.
            Name::Key(key) if here.contains(&(*tenant, key)) => {
                refs.known.insert((*fact, *tenant, name.clone()), Known::Earlier);
                false
            }
            Name::Key(key) => {
                keys.push(*tenant, key);
                true
            }
            Name::Id(_) => true,
        });
        let stubs = if keys.is_empty() {
            Vec::new()
        } else {
            store::find_any(&self.scope, tx, &keys).await?
        };
        let stubs: HashMap<(TenantId, &Key), &Stub> =
            stubs.iter().map(|stub| ((stub.tenant, &stub.key), stub)).collect();
        let mut ids: HashMap<std::any::TypeId, Vec<(TenantId, Uuid)>> = HashMap::new();
        let mut named = Vec::with_capacity(asks.asked.len());
        for (fact, tenant, name) in asks.asked {
            let id = match &name {
                Name::Id(id) => Some(*id),
                Name::Key(key) => {
                    let noun = self.inner.kinds.fact_of(fact).noun();
                    stubs.get(&(tenant, key)).and_then(|stub| stub.made(noun))
                }
            };
            if let Some(id) = id {
                ids.entry(fact).or_default().push((tenant, id));
                named.push((fact, tenant, name, id));
            }
        }
        for (fact, mut ids) in ids {
            ids.sort_unstable();
            ids.dedup();
            let values = self.inner.kinds.fact_of(fact).read(&self.scope, tx, &ids).await?;
            for (tenant, id, value) in values {
                refs.known
                    .insert((fact, tenant, Name::Id(id)), Known::Stored(id, value));
            }
        }
        // A fact found under its id is also the fact of the key that led there.
        for (fact, tenant, name, id) in named {
            if matches!(name, Name::Key(_)) {
                refs.alias(fact, tenant, name, id);
            }
        }
        Ok(refs)
    }

    fn needs(&self, books: &mut Books, refs: &mut Refs) {
        for &i in &self.work {
            let intent = self.intent(i);
            books.set_tenant(intent.tenant);
            refs.tenant = Some(intent.tenant);
            for effect in &intent.effects {
                effect.kind.needs(&*effect.body, refs, &mut Needs { books });
            }
        }
    }

    /// Makes and locks; then reads the clock, since a transaction that waited for another one's rows
    /// must not carry an earlier time than what it finds in them.
    async fn lock(&self, tx: &Tx, books: &mut Books, wait: Wait) -> Result<Timestamp, Miss> {
        let options = &self.inner.options;
        match wait {
            Wait::Queue => tx.set_lock_timeout(options.lock_timeout).await?,
            // Making waits for a foreign uncommitted insert of the same row, SKIP LOCKED or not.
            Wait::Skip if books.makes() => tx.set_lock_timeout(options.make_timeout).await?,
            Wait::Skip => {}
        }
        let (locked, now) = futures_util::join!(books.lock(&self.scope, tx, wait), store::clock(&self.scope, tx));
        pipeline::both(locked, now).map(|((), now)| now).map_err(|error| {
            let makers = if wait == Wait::Skip && error.sqlstate() == Some("55P03") {
                // The error does not say whose row it was: every tenant that makes rows goes.
                books.makers()
            } else {
                Vec::new()
            };
            Miss {
                error,
                verdict: Verdict::RolledBack,
                makers,
            }
        })
    }

    /// Steps 4 to 6: apply, write back, commit.
    async fn land(mut self, tx: Tx, mut ready: Ready) -> Result<Landed, Miss> {
        let stubs = self.apply(&mut ready);
        if stubs.is_empty() {
            // Nothing came of it, so nothing stays: least of all the blanks that were made for it.
            tx.rollback().await;
            return Ok(Landed {
                ended: self.ended,
                held: ready.held,
            });
        }
        let generations = self.inner.generations;
        let open = self.open;
        let mut rows: Vec<(&Stub, i32)> = stubs
            .iter()
            .map(|(_, stub)| {
                let generation = match generations.place(&stub.key) {
                    Place::Of(generation) => generation,
                    // None is open before the first rotation: -1 has no partition, which makes one.
                    Place::Open => open.unwrap_or(-1),
                };
                (stub, generation)
            })
            .collect();
        rows.sort_unstable_by(|(a, _), (b, _)| (a.tenant, &a.key).cmp(&(b.tenant, &b.key)));
        let (books, written) = futures_util::join!(
            ready.books.save(&self.scope, &tx),
            store::insert(&self.scope, &tx, &rows, ready.now)
        );
        if let Err(error) = pipeline::both(books, written) {
            tx.rollback().await;
            return Err(error.into());
        }
        let metrics = &self.inner.lane(self.at).metrics;
        let start = Instant::now();
        match tx.commit().await {
            Ok(()) => {
                metrics.commit(start.elapsed());
                metrics.verdict(Verdict::Committed);
            }
            Err(error) => {
                metrics.verdict(error.verdict);
                return Err(Miss {
                    error: error.source,
                    verdict: error.verdict,
                    makers: Vec::new(),
                });
            }
        }
        self.ended
            .extend(stubs.into_iter().map(|(i, stub)| (i, Answer::First(stub))));
        Ok(Landed {
            ended: self.ended,
            held: ready.held,
        })
    }

    /// Applies the intents to the books, one after another. A refusal or a panic undoes itself.
    fn apply(&mut self, ready: &mut Ready) -> Vec<(usize, Stub)> {
        let mut context = Context::new(ready.now, Box::new(new_id));
        let mut stubs = Vec::with_capacity(self.work.len());
        for &i in &self.work {
            let intent = self.intent(i);
            ready.books.set_tenant(intent.tenant);
            ready.refs.tenant = Some(intent.tenant);
            context.tenant = intent.tenant;
            ready.books.begin();
            let applied = catch_unwind(AssertUnwindSafe(|| apply_all(intent, ready, &mut context)));
            let (accepted, result) = match applied {
                Ok(result) => result,
                Err(panic) => {
                    ready.books.undo();
                    context.made.remove(&(intent.tenant, intent.key.clone()));
                    self.ended.push((i, self.inner.panicked(self.at, intent, &*panic)));
                    continue;
                }
            };
            if !accepted {
                ready.books.undo();
                context.made.remove(&(intent.tenant, intent.key.clone()));
            }
            stubs.push((
                i,
                Stub {
                    tenant: intent.tenant,
                    key: intent.key.clone(),
                    kind: intent.kind_name().into(),
                    accepted,
                    result: result.into(),
                    recorded_at: ready.now,
                    origin: self.batch[i].origin,
                    hashes: intent.hashes.bytes.clone(),
                },
            ));
        }
        stubs
    }
}

/// Applies the effects of one intent in order, all or nothing, and gives the stub's result.
fn apply_all(intent: &Intent, ready: &mut Ready, context: &mut Context) -> (bool, String) {
    let mut results = String::new();
    for (n, effect) in intent.effects.iter().enumerate() {
        match effect.kind.apply(&mut ready.books, &*effect.body, &ready.refs, context) {
            Outcome::Accepted(mut reply) => {
                let made = std::mem::take(&mut reply.made);
                if !made.is_empty() {
                    context
                        .made
                        .entry((intent.tenant, intent.key.clone()))
                        .or_default()
                        .extend(made);
                }
                if n > 0 {
                    results.push(',');
                }
                results.push_str(&reply.into_json());
            }
            Outcome::Refused(mut refusal) => {
                if intent.all {
                    refusal.field = format!("all[{n}].body.{}", refusal.field);
                }
                let refusal = serde_json::json!({
                    "code": refusal.code,
                    "field": refusal.field,
                    "message": refusal.message,
                });
                return (false, refusal.to_string());
            }
        }
    }
    (
        true,
        if intent.all {
            format!("{{\"all\":[{results}]}}")
        } else {
            results
        },
    )
}

/// A UUIDv7 of the database's time.
fn new_id(now: Timestamp) -> Uuid {
    let millis = u64::try_from(now.as_millisecond()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid()
}

/// Those of the named tenants, and the rest, each in order.
fn split(batch: Vec<Pending>, tenants: &[TenantId]) -> (Vec<Pending>, Vec<Pending>) {
    batch
        .into_iter()
        .partition(|pending| tenants.contains(&pending.intent.tenant))
}

/// A unique violation on any partition of the stub table: another server has the same key.
fn is_stub(error: &Error) -> bool {
    error.table().is_some_and(|table| table.starts_with("stub_"))
}

const fn reason(class: Class) -> &'static str {
    match class {
        Class::Retry => "conflicts with other transactions did not end",
        Class::Reconnect => "PostgreSQL cannot be reached, or takes no writes",
        Class::Reprepare => "prepared statements kept going stale",
        Class::MissingPartition => "a partition is missing and could not be made",
        Class::Unique => "another server kept working on the same keys",
        Class::Data | Class::Other => "PostgreSQL refused the transaction",
    }
}

async fn pause(attempts: u32) {
    let base = FIRST_PAUSE.saturating_mul(1 << attempts.min(10)).min(LONGEST_PAUSE);
    tokio::time::sleep(base.mul_f64(rand::random_range(0.5..1.0))).await;
}
