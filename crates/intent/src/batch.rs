//! One batch: tried until its fate is known (the transaction itself is in `attempt.rs`).

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_pg::{Class, Error, Role, Scope, TenantId, Verdict};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::ahead::{Prepared, Turn};
use crate::answer::Answer;
use crate::attempt::{Access, Attempt, Landed, Miss, Stop};
use crate::intent::Intent;
use crate::lane::Inner;
use crate::queue::Pending;
use crate::table::Wait;

/// Pauses between attempts double from here, with jitter.
const FIRST_PAUSE: Duration = Duration::from_millis(4);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// For so long a lane halves a batch to find the tenant whose row somebody else is inserting.
/// Every half costs [`crate::Options::make_timeout`], and other tenants wait.
const SEARCH: Duration = Duration::from_secs(1);

/// For so long a batch is halved to find what takes longer than the statement timeout: three of
/// them, as `init` sets it.
const SLOW_SEARCH: Duration = Duration::from_secs(45);

/// The attempts at one batch so far.
struct Course {
    wait: Wait,
    attempts: u32,
    started: Instant,
    /// When the batch was begun of which this is a half of a half.
    since: Instant,
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
        let held = self.bring_down(at, batch, wait, None).await;
        self.put_all_aside(at, held);
    }

    /// In the order of the batch. Only when no part of it is under way any more, so that a tenant's
    /// intents cannot overtake each other between the halves of a bisection.
    pub(crate) fn put_all_aside(self: &Arc<Self>, at: usize, held: Vec<Pending>) {
        let mut lines: HashMap<TenantId, Vec<Pending>> = HashMap::new();
        for pending in held {
            lines.entry(pending.intent.tenant).or_default().push(pending);
        }
        for (tenant, line) in lines {
            self.put_aside(at, tenant, line);
        }
    }

    /// Tries until everything has its answer or is held up by somebody else's locks; returns the
    /// latter. `missed` is a first attempt that was made before.
    pub(crate) fn bring_down(
        &self,
        at: usize,
        batch: Vec<Pending>,
        wait: Wait,
        missed: Option<Miss>,
    ) -> BoxFuture<'_, Vec<Pending>> {
        self.bring_half_down(at, batch, wait, missed, Instant::now())
    }

    fn bring_half_down(
        &self,
        at: usize,
        batch: Vec<Pending>,
        wait: Wait,
        mut missed: Option<Miss>,
        since: Instant,
    ) -> BoxFuture<'_, Vec<Pending>> {
        Box::pin(async move {
            let mut batch = self.sift(at, batch, missed.is_some());
            let mut course = Course {
                wait,
                attempts: 0,
                started: Instant::now(),
                since,
            };
            let mut held = Vec::new();
            while !batch.is_empty() {
                course.attempts += 1;
                let attempt = match missed.take() {
                    Some(miss) => Ok(Err(miss)),
                    // A panic in a kind's `refs` or `needs`, or in a store, must not end the lane.
                    None => {
                        AssertUnwindSafe(self.attempt(at, &batch, course.wait))
                            .catch_unwind()
                            .await
                    }
                };
                let next = match attempt {
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
                        held.extend(self.bring_half_down(at, batch, wait, None, since).await);
                        let second = behind(&mut held, second);
                        held.extend(self.bring_half_down(at, second, wait, None, since).await);
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

    /// Ends the intents that must not land any more: what stands behind one that ended without an
    /// outcome, and what is past its deadline, unless it has been `tried`, and so has started.
    pub(crate) fn sift(&self, at: usize, batch: Vec<Pending>, tried: bool) -> Vec<Pending> {
        let now = Instant::now();
        let mut ended = Vec::new();
        let mut left = Vec::with_capacity(batch.len());
        for pending in batch {
            let late = || pending.intent.deadline.is_some_and(|deadline| deadline <= now);
            let answer = match pending.series.broken() {
                // It may have landed already. That has to be found out.
                _ if pending.unknown => None,
                Some(answer) => Some(answer.clone()),
                None if !tried && late() => Some(Answer::DeadlinePassed),
                None => None,
            };
            match answer {
                Some(answer) => ended.push((pending, answer)),
                None => left.push(pending),
            }
        }
        self.finish(at, ended);
        left
    }

    /// Hands out the answers of an attempt that came to its end; returns the intents that have none.
    pub(crate) fn settle(&self, at: usize, batch: Vec<Pending>, landed: Landed) -> Vec<Pending> {
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
            if batch.iter().any(|pending| !pending.unknown) {
                // The time to find out begins now: waiting for the reply may have used up all of it.
                course.started = Instant::now();
            }
            // The stubs decide. A lane does not wait for the twin, which may still be at work, nor for
            // who got its locks after it: what is held goes aside, and is waited for there.
            doubt(batch);
        }
        if miss.unlocked && matches!(class, Class::Retry | Class::Unique) {
            // Somebody else was at the rows, or has inserted what goes with them. The next attempt
            // locks, and finds out whose they are.
            self.lane(at).beware();
            return Next::Again;
        }
        let sqlstate = miss.error.sqlstate();
        let in_time = course.started.elapsed() < self.options.reconnect;
        let in_attempts = course.attempts < self.options.attempts;
        let again = match class {
            // The fate of a COMMIT is asked for as long as it is tried to reach the server.
            _ if miss.verdict == Verdict::Unknown => in_time,
            Class::Retry if sqlstate == Some("55P03") => match course.wait {
                Wait::Skip if !miss.makers.is_empty() => return Next::Aside(miss.makers),
                Wait::Skip => return whose_row(course, batch),
                // The lock timeout has passed once already; whoever holds the row still does. That is an
                // answer only to who may be told that nothing was done.
                Wait::Queue if in_time && batch.iter().any(|pending| pending.unknown) => true,
                Wait::Queue => return Next::GiveUp(Answer::Busy),
            },
            Class::Unique if is_stub(&miss.error) => in_attempts,
            Class::Unique | Class::Data => {
                return if batch.len() > 1 {
                    Next::Halve
                } else {
                    Next::GiveUp(self.poisoned(at, &batch[0], &miss.error))
                };
            }
            Class::Retry | Class::Reprepare => in_attempts,
            // A connection that has gone silent may have used up all the time on its own.
            Class::Reconnect => in_time || course.attempts == 1,
            Class::MissingPartition => {
                if let Err(error) = self.generations.ensure(&self.database).await {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "a stub partition is missing and could not be made");
                }
                in_attempts
            }
            // The statement timeout: fewer intents take less time.
            Class::Other if sqlstate == Some("57014") && batch.len() > 1 && course.since.elapsed() < SLOW_SEARCH => {
                return Next::Halve;
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
        Next::GiveUp(Answer::Unavailable {
            reason: reason(&miss.error),
        })
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

    pub(crate) fn panicked(&self, at: usize, intent: &Intent, panic: &(dyn std::any::Any + Send)) -> Answer {
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

    /// One attempt with locks, and nothing beside it.
    async fn attempt(&self, at: usize, batch: &[Pending], wait: Wait) -> Result<Landed, Miss> {
        let landed = async {
            let prepared = self.prepare(at, batch, Access::Locked(wait)).await?;
            prepared.land(self, at, batch, &mut Turn::alone()).await
        };
        landed.await.map_err(|stop| match stop {
            Stop::Missed(miss) => miss,
            Stop::Behind => unreachable!("nothing is before it"),
        })
    }

    /// Begins a transaction and takes it as far as loaded rows.
    pub(crate) async fn prepare(&self, at: usize, batch: &[Pending], access: Access) -> Result<Prepared, Stop> {
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
        match attempt.prepare(&tx, access).await {
            Ok(ready) => Ok(Prepared::new(attempt, tx, ready)),
            Err(stop) => {
                tx.rollback().await;
                Err(stop)
            }
        }
    }
}

/// Those of the named tenants, and the rest, each in order.
fn split(batch: Vec<Pending>, tenants: &[TenantId]) -> (Vec<Pending>, Vec<Pending>) {
    let tenants: HashSet<_> = tenants.iter().collect();
    batch
        .into_iter()
        .partition(|pending| tenants.contains(&pending.intent.tenant))
}

/// Moves the intents of tenants that are held up to the others of theirs; returns the rest.
pub(crate) fn behind(held: &mut Vec<Pending>, batch: Vec<Pending>) -> Vec<Pending> {
    let tenants: Vec<_> = held.iter().map(|pending| pending.intent.tenant).collect();
    let (behind, rest) = split(batch, &tenants);
    held.extend(behind);
    rest
}

/// A COMMIT got no reply: of none of these may be said that nothing was done, until a stub decides.
pub(crate) fn doubt(batch: &mut [Pending]) {
    for pending in batch {
        pending.unknown = true;
    }
}

/// Somebody else is inserting a row that a batch inserts, too: the stub of a key, as a rule. The
/// error does not say whose it is.
fn whose_row(course: &Course, batch: &[Pending]) -> Next {
    let mut tenants: Vec<_> = batch.iter().map(|pending| pending.intent.tenant).collect();
    tenants.sort_unstable();
    tenants.dedup();
    // After a lost reply it is the twin, and it has rows of all of them.
    let twin = batch.iter().any(|pending| pending.unknown);
    if tenants.len() == 1 || twin || course.since.elapsed() > SEARCH {
        Next::Aside(tenants)
    } else {
        Next::Halve
    }
}

/// A unique violation on any partition of the stub table: another server has the same key.
fn is_stub(error: &Error) -> bool {
    error.table().is_some_and(|table| table.starts_with("stub_"))
}

fn reason(error: &Error) -> &'static str {
    match error.class() {
        Class::Retry => "conflicts with other transactions did not end",
        Class::Reconnect if matches!(error, Error::PoolExhausted { .. }) => "all connections to PostgreSQL are busy",
        Class::Reconnect => "PostgreSQL cannot be reached, or takes no writes",
        Class::Reprepare => "prepared statements kept going stale",
        Class::MissingPartition => "a partition is missing and could not be made",
        Class::Unique => "another server kept working on the same keys",
        Class::Data | Class::Other => match error.sqlstate() {
            Some("57014") => "PostgreSQL took longer than its statement timeout, or was told to cancel",
            Some("53100") => "the disk of PostgreSQL is full",
            Some("42501") => "a right in PostgreSQL is missing",
            _ => "PostgreSQL refused the transaction",
        },
    }
}

async fn pause(attempts: u32) {
    let base = FIRST_PAUSE.saturating_mul(1 << attempts.min(10)).min(LONGEST_PAUSE);
    tokio::time::sleep(base.mul_f64(rand::random_range(0.5..1.0))).await;
}
