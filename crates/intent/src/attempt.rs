//! One attempt at a batch: one transaction, from its stubs to its COMMIT.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_pg::{AdvisoryLock, Error, Scope, TenantId, Tx, Verdict};
use jiff::Timestamp;
use uuid::Uuid;

use crate::ahead::Turn;
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
use crate::store::{self, KeyArrays, Standing};
use crate::stub::Stub;
use crate::table::Wait;

/// What an attempt came to.
pub(crate) struct Landed {
    pub(crate) ended: Vec<(usize, Answer)>,
    /// Tenants of which a row is held by somebody else.
    pub(crate) held: Vec<TenantId>,
    /// How long it worked, without waiting for its turn and without COMMIT.
    pub(crate) worked: Duration,
}

/// Why a batch did not land.
pub(crate) enum Stop {
    Missed(Miss),
    /// It has to wait for the batches before it: for what they make, or since one of them did not
    /// land as it was prepared.
    Behind,
}

/// Why an attempt did not commit.
pub(crate) struct Miss {
    pub(crate) error: Error,
    pub(crate) verdict: Verdict,
    /// Tenants whose making of rows ran into the lock timeout.
    pub(crate) makers: Vec<TenantId>,
    /// Rows were loaded without locking them.
    pub(crate) unlocked: bool,
}

impl From<Miss> for Stop {
    fn from(miss: Miss) -> Self {
        Self::Missed(miss)
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Missed(error.into())
    }
}

impl From<Error> for Miss {
    fn from(error: Error) -> Self {
        Self {
            error,
            verdict: Verdict::RolledBack,
            makers: Vec::new(),
            unlocked: false,
        }
    }
}

/// A batch in its transaction.
pub(crate) struct Attempt<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) at: usize,
    pub(crate) scope: Scope,
    pub(crate) batch: &'a [Pending],
    /// Places in the batch of the intents that are still to be applied.
    pub(crate) work: Vec<usize>,
    pub(crate) ended: Vec<(usize, Answer)>,
    pub(crate) open: Option<i32>,
}

/// How a batch gets at its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Loaded without a lock: what is loaded is of one moment, and `save` finds out whether anybody
    /// has changed it since. `alone`: nothing of this lane is under way. A batch that cannot do
    /// without locks then takes them; beside another one it is left for later.
    Ahead { alone: bool },
    /// Locked, then loaded.
    Locked(Wait),
}

/// Loaded.
pub(crate) struct Ready {
    pub(crate) books: Books,
    refs: Refs,
    pub(crate) now: Timestamp,
    held: Vec<TenantId>,
    pub(crate) unlocked: bool,
    /// It may wait for others at the write-back as long as it did for locks: it is outside of a lane.
    patient: bool,
}

impl<'a> Attempt<'a> {
    fn intent(&self, i: usize) -> &'a Intent {
        &self.batch[i].intent
    }

    /// Steps 1 to 3: stubs, refs, needs, making, locking, loading. `None` where every intent had its
    /// answer in a stub.
    pub(crate) async fn prepare(&mut self, tx: &Tx, access: Access) -> Result<Option<Box<Ready>>, Stop> {
        let looked_up_at = self.look_up(tx).await?;
        if self.work.is_empty() {
            return Ok(None);
        }
        let asks = self.asks();
        if access == (Access::Ahead { alone: false }) && !asks.asked.is_empty() {
            // The batch that is under way may be making what is asked about.
            return Err(Stop::Behind);
        }
        let mut refs = self.refs(tx, asks).await?;
        let mut books = self.inner.kinds.books();
        self.needs(&mut books, &mut refs);
        let unlocked = matches!(access, Access::Ahead { .. }) && books.revised();
        let now = match access {
            // Whoever commits a later time into these rows before this transaction ends also changes
            // their revisions: for one account time does not go back.
            Access::Ahead { .. } if unlocked => looked_up_at,
            Access::Ahead { alone: false } => return Err(Stop::Behind),
            Access::Ahead { alone: true } => self.lock(tx, &mut books, Wait::Skip).await?,
            Access::Locked(wait) => self.lock(tx, &mut books, wait).await?,
        };
        let held = books.load(&self.scope, tx, now, !unlocked).await?;
        if !held.is_empty() {
            self.work
                .retain(|i| held.binary_search(&self.batch[*i].intent.tenant).is_err());
        }
        Ok(Some(Box::new(Ready {
            books,
            refs,
            now,
            held,
            unlocked,
            patient: access == Access::Locked(Wait::Queue),
        })))
    }

    /// Looks for the stubs of all keys; a hit answers its caller. Returns the database's time.
    async fn look_up(&mut self, tx: &Tx) -> Result<Timestamp, Error> {
        let generations = self.inner.generations;
        let near = self.inner.lane(self.at).near();
        let mut dated: HashMap<i32, KeyArrays> = HashMap::new();
        // Callers choose the times of their keys: a statement for each generation they come up with
        // would be one for each key.
        let mut far = KeyArrays::default();
        let mut undated = KeyArrays::default();
        for pending in self.batch {
            let intent = &pending.intent;
            let keys = match generations.place(&intent.key) {
                Place::Of(generation) if near.contains(&generation) => dated.entry(generation).or_default(),
                Place::Of(_) => &mut far,
                Place::Open => &mut undated,
            };
            keys.push(intent.tenant, &intent.key);
        }
        if !undated.is_empty() {
            // Held to the end of the transaction: rotation must not open another generation
            // between our look for a key that carries no time and our insert of its stub.
            // Awaited by itself, since what it guards must be read by later statements.
            tx.lock_shared(AdvisoryLock::StubGenerations).await?;
        }
        let mut anywhere = far;
        anywhere.append(undated);
        let dated = futures_util::future::join_all(
            dated
                .iter()
                .map(|(generation, keys)| store::find(&self.scope, tx, keys, *generation)),
        );
        let anywhere = async {
            if anywhere.is_empty() {
                Ok(Vec::new())
            } else {
                store::find_any(&self.scope, tx, &anywhere).await
            }
        };
        let (standing, dated, anywhere) = futures_util::join!(store::standing(&self.scope, tx), dated, anywhere);
        let (Standing { now, open, dropped }, found) =
            pipeline::both(standing, pipeline::all(dated.into_iter().chain([anywhere])))?;
        self.open = open;
        self.inner.lane(self.at).remember_open(open);
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
                None if generations.too_old(&intent.key, now) || generations.is_dropped(&intent.key, dropped) => {
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
        Ok(now)
    }

    /// The facts that kinds ask for.
    fn asks(&self) -> Asks {
        let mut asks = Asks::default();
        for &i in &self.work {
            let intent = self.intent(i);
            asks.tenant = Some(intent.tenant);
            for effect in &intent.effects {
                effect.kind.refs(&*effect.body, &mut asks);
            }
        }
        asks
    }

    /// Reads the facts that kinds ask for.
    async fn refs(&self, tx: &Tx, mut asks: Asks) -> Result<Refs, Error> {
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
                unlocked: false,
            }
        })
    }

    /// Steps 4 to 6: apply, write back, commit.
    pub(crate) async fn land(mut self, tx: Tx, ready: Box<Ready>, turn: &mut Turn) -> Result<Landed, Stop> {
        let (held, unlocked) = (ready.held.clone(), ready.unlocked);
        let (stubs, worked) = match self.write_back(&tx, ready, turn).await {
            Ok(written) => written,
            Err(stop) => {
                // To its end: whoever comes next must not meet the locks of this transaction.
                tx.rollback().await;
                return Err(match stop {
                    Stop::Missed(miss) => Stop::Missed(Miss { unlocked, ..miss }),
                    Stop::Behind => Stop::Behind,
                });
            }
        };
        if stubs.is_empty() {
            // Nothing came of it, so nothing stays: least of all the blanks that were made for it.
            tx.rollback().await;
        } else {
            self.commit(tx).await?;
        }
        self.ended
            .extend(stubs.into_iter().map(|(i, stub)| (i, Answer::First(stub))));
        Ok(Landed {
            ended: self.ended,
            held,
            worked,
        })
    }

    /// As far as COMMIT, each step when its turn comes. Returns the stubs, and how long it worked.
    async fn write_back(
        &mut self,
        tx: &Tx,
        mut ready: Box<Ready>,
        turn: &mut Turn,
    ) -> Result<(Vec<(usize, Stub)>, Duration), Stop> {
        for before in turn.applied().await? {
            if !ready.books.carry(&before, ready.now) {
                return Err(Stop::Behind);
            }
        }
        let start = Instant::now();
        let stubs = self.apply(&mut ready);
        let mut worked = start.elapsed();
        let books = Arc::new(ready.books);
        turn.apply(Arc::clone(&books));
        if stubs.is_empty() {
            turn.ended().await?;
            return Ok((stubs, worked));
        }
        worked += self.write(tx, &books, &stubs, ready.now, ready.patient, turn).await?;
        turn.ended().await?;
        // Only now that the batch before has let go of its rows: this does not wait for anybody.
        books.confirm(&self.scope, tx).await?;
        Ok((stubs, worked))
    }

    async fn commit(&self, tx: Tx) -> Result<(), Miss> {
        let metrics = &self.inner.lane(self.at).metrics;
        let start = Instant::now();
        match tx.commit().await {
            Ok(()) => {
                metrics.commit(start.elapsed());
                metrics.verdict(Verdict::Committed);
                Ok(())
            }
            Err(error) => {
                metrics.verdict(error.verdict);
                Err(Miss {
                    verdict: error.verdict,
                    ..error.source.into()
                })
            }
        }
    }

    /// Writes back rows and stubs, pipelined: what is only inserted first, since that waits for no batch
    /// before this one. Those that were loaded without a lock are locked by their update. Returns how
    /// long it worked.
    async fn write(
        &self,
        tx: &Tx,
        books: &Books,
        stubs: &[(usize, Stub)],
        now: Timestamp,
        patient: bool,
        turn: &mut Turn,
    ) -> Result<Duration, Stop> {
        let generations = self.inner.generations;
        let mut rows: Vec<(&Stub, i32)> = stubs
            .iter()
            .map(|(_, stub)| {
                let generation = match generations.place(&stub.key) {
                    Place::Of(generation) => generation,
                    // None is open before the first rotation: -1 has no partition, which makes one.
                    Place::Open => self.open.unwrap_or(-1),
                };
                (stub, generation)
            })
            .collect();
        rows.sort_unstable_by(|(a, _), (b, _)| (a.tenant, &a.key).cmp(&(b.tenant, &b.key)));
        let start = Instant::now();
        // Inserting waits for a foreign uncommitted row of the same key, and so does updating what was
        // not locked before: a lane must not, for longer than a moment.
        let bounded = async {
            if patient {
                Ok(())
            } else {
                tx.set_lock_timeout(self.inner.options.make_timeout).await
            }
        };
        let inserted = async {
            let (appended, left) = futures_util::join!(
                books.append_all(&self.scope, tx),
                store::insert(&self.scope, tx, &rows, now)
            );
            (pipeline::both(appended, left), Instant::now())
        };
        let saved = async {
            let waiting = Instant::now();
            turn.written().await?;
            let begun = Instant::now();
            let saved = books.save(&self.scope, tx).await;
            if saved.is_ok() {
                turn.write();
            }
            Ok::<_, Stop>((saved, waiting, begun))
        };
        let (bounded, (inserted, until), saved) = futures_util::join!(bounded, inserted, saved);
        let (saved, waiting, begun) = saved?;
        pipeline::all([bounded, inserted.map(|_| ()), saved])?;
        // Nobody was waited for while the inserts were still at work.
        let waited = begun.saturating_duration_since(waiting.max(until));
        Ok(start.elapsed().saturating_sub(waited))
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
                refusal.field = intent.path(n, &refusal.field);
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
        if intent.is_all() {
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
