//! What waits in a lane, and whose turn it is. Pure: no clock, no I/O.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use counterfoil_pg::TenantId;
use tokio::sync::oneshot;

use crate::answer::Answer;
use crate::intent::Intent;
use crate::key::Key;
use crate::stub::Stub;

/// What weight of intents of one tenant is taken before the next tenant has its turn (deficit round
/// robin): a heavier intent waits until its tenant has saved up for it.
const QUANTUM: usize = 32;

/// Intents of one tenant that were handed over together. Once one of them ends without an outcome,
/// for a reason that may pass, those after it end the same way: they must not land before it is sent
/// again.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(Option<Arc<OnceLock<Answer>>>);

impl Series {
    /// For more than one intent.
    pub(crate) fn of_many() -> Self {
        Self(Some(Arc::default()))
    }

    /// How one of them ended, if those that have not been tried yet are to end like it.
    pub(crate) fn broken(&self) -> Option<&Answer> {
        self.0.as_ref()?.get()
    }

    fn ended(&self, answer: &Answer) {
        let Some(end) = &self.0 else { return };
        let of_the_rest = match answer {
            Answer::Busy | Answer::Unavailable { .. } => answer.clone(),
            // Of the rest it is known that nothing was done.
            Answer::Unknown => Answer::Unavailable {
                reason: "what became of an intent before it in the same request is not known",
            },
            _ => return,
        };
        // The first one counts.
        let _ = end.set(of_the_rest);
    }
}

/// An intent on its way, with the caller that waits for it.
pub(crate) struct Pending {
    pub(crate) intent: Intent,
    /// Which submission this is; kept in the stub.
    pub(crate) origin: i64,
    /// Its COMMIT was sent once and no reply came. Until a stub or a commit decides, nothing that
    /// says "not done" may be answered.
    pub(crate) unknown: bool,
    pub(crate) series: Series,
    pub(crate) reply: oneshot::Sender<Answer>,
}

/// Answers on their way: sent once the queue is let go of, since each of them wakes a task.
pub(crate) type Replies = Vec<(oneshot::Sender<Answer>, Answer)>;

pub(crate) fn send(replies: Replies) {
    for (reply, answer) in replies {
        // A caller that went away has no use for its answer.
        let _ = reply.send(answer);
    }
}

/// The tenant's line, or the lane, has no room for another intent.
#[derive(Debug)]
pub(crate) struct Full;

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) per_tenant: usize,
    pub(crate) per_lane: usize,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Pending>,
    /// Out of the lane: somebody else holds a row of this tenant, and a detour serves its line.
    aside: bool,
    followers: usize,
    /// Weight that its turns have given it and that it has not used.
    credit: usize,
}

/// The waiting intents of one lane, tenant by tenant.
pub(crate) struct Queue {
    bounds: Bounds,
    lines: HashMap<TenantId, Line>,
    /// Tenants with something waiting, in the order of their turns; those aside are not among them.
    turns: VecDeque<TenantId>,
    waiting: usize,
    /// Keys on their way, each with the submissions of the same key that wait for its end.
    flights: HashMap<TenantId, HashMap<Key, Vec<Pending>>>,
    running: usize,
}

impl Queue {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            lines: HashMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            flights: HashMap::new(),
            running: 0,
        }
    }

    /// Intents waiting, those behind an equal key included.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Tenants that a detour serves.
    pub(crate) fn aside(&self) -> usize {
        self.lines.values().filter(|line| line.aside).count()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.running == 0
    }

    pub(crate) fn in_flight(&self, tenant: TenantId, key: &Key) -> bool {
        self.flights
            .get(&tenant)
            .is_some_and(|flights| flights.contains_key(key))
    }

    /// Puts an intent at the end of its tenant's line, where there is room.
    pub(crate) fn push(&mut self, pending: Pending) -> Result<(), Full> {
        let tenant = pending.intent.tenant;
        let line = self.lines.entry(tenant).or_default();
        if self.waiting >= self.bounds.per_lane || line.waiting.len() + line.followers >= self.bounds.per_tenant {
            self.forget_line(tenant);
            return Err(Full);
        }
        self.waiting += 1;
        let flights = self.flights.entry(tenant).or_default();
        if let Some(followers) = flights.get_mut(&pending.intent.key) {
            followers.push(pending);
            line.followers += 1;
            return Ok(());
        }
        flights.insert(pending.intent.key.clone(), Vec::new());
        if line.waiting.is_empty() && !line.aside {
            self.turns.push_back(tenant);
        }
        line.waiting.push_back(pending);
        Ok(())
    }

    /// Takes intents of up to `most` in weight, but at least one, tenants taking turns.
    pub(crate) fn take(&mut self, most: usize) -> Vec<Pending> {
        let mut out = Vec::with_capacity(most.min(self.waiting));
        let (mut weight, mut full) = (0, false);
        while weight < most && !full {
            let Some(tenant) = self.turns.pop_front() else { break };
            let line = self.lines.get_mut(&tenant).expect("a tenant with a turn has a line");
            line.credit += QUANTUM;
            while let Some(next) = line.waiting.front().map(|pending| pending.intent.weight) {
                if next > line.credit {
                    break;
                }
                full = weight + next > most && !out.is_empty();
                if full {
                    break;
                }
                line.credit -= next;
                weight += next;
                out.extend(line.waiting.pop_front());
            }
            if line.waiting.is_empty() {
                line.credit = 0;
            } else if full {
                // Its turn was cut short: it comes first in the next batch.
                self.turns.push_front(tenant);
            } else {
                self.turns.push_back(tenant);
            }
        }
        self.waiting -= out.len();
        self.running += out.len();
        out
    }

    /// Puts a tenant aside, its intents of the running batch first in line again. Returns whether
    /// a detour has to be started for it.
    pub(crate) fn put_aside(&mut self, tenant: TenantId, batch: Vec<Pending>) -> bool {
        let line = self.lines.entry(tenant).or_default();
        self.waiting += batch.len();
        self.running -= batch.len();
        for pending in batch.into_iter().rev() {
            line.waiting.push_front(pending);
        }
        self.turns.retain(|turn| *turn != tenant);
        !std::mem::replace(&mut line.aside, true)
    }

    /// Takes from the line of a tenant that is aside, as [`Self::take`] does. An empty line puts the tenant back into the lane.
    pub(crate) fn take_aside(&mut self, tenant: TenantId, most: usize) -> Vec<Pending> {
        let Some(line) = self.lines.get_mut(&tenant).filter(|line| line.aside) else {
            return Vec::new();
        };
        if line.waiting.is_empty() {
            line.aside = false;
            self.forget_line(tenant);
            return Vec::new();
        }
        let mut weight = 0;
        let fits = line.waiting.iter().take_while(|pending| {
            weight += pending.intent.weight;
            weight <= most
        });
        let count = fits.count().max(1);
        let out: Vec<_> = line.waiting.drain(..count).collect();
        self.waiting -= out.len();
        self.running += out.len();
        out
    }

    /// Ends an intent: adds to `replies` what its caller is told, and those that waited behind it
    /// with the same key. Where it ended without a stub, the first of them takes its place. Returns
    /// whether that gave the lane something to do.
    pub(crate) fn finish(&mut self, pending: Pending, answer: Answer, replies: &mut Replies) -> bool {
        let answer = if pending.unknown {
            answer.after_unknown()
        } else {
            answer
        };
        pending.series.ended(&answer);
        let (tenant, key) = (pending.intent.tenant, pending.intent.key);
        self.running -= 1;
        let flights = self
            .flights
            .get_mut(&tenant)
            .expect("an intent that ends was in flight");
        let followers = flights.remove(&key).expect("an intent that ends was in flight");
        let mut woken = false;
        if !followers.is_empty() {
            let line = self.lines.entry(tenant).or_default();
            line.followers -= followers.len();
            match &answer {
                Answer::First(stub) | Answer::Replayed(stub) => {
                    self.waiting -= followers.len();
                    for follower in followers {
                        let answer = replay(&follower, stub);
                        replies.push((follower.reply, answer));
                    }
                }
                _ => woken = self.promote(tenant, key, followers, pending.unknown),
            }
        }
        if self.flights.get(&tenant).is_some_and(HashMap::is_empty) {
            self.flights.remove(&tenant);
        }
        self.forget_line(tenant);
        replies.push((pending.reply, answer));
        woken
    }

    /// Ends what a tenant has waiting beyond its deadline: adds to `replies` what its callers are told.
    /// What is running is not ended in the middle, nor what may have been committed, nor who waits for either
    /// with the same key: of that key it could not be said that nothing was done.
    pub(crate) fn expire(&mut self, tenant: TenantId, now: Instant, replies: &mut Replies) {
        let late = |pending: &Pending| !pending.unknown && pending.intent.deadline.is_some_and(|by| by <= now);
        let Some(line) = self.lines.get_mut(&tenant) else {
            return;
        };
        // Followers first: one of them must not take the place of a leader only to be ended after it.
        if let Some(flights) = self.flights.get_mut(&tenant).filter(|_| line.followers > 0) {
            for leader in line.waiting.iter().filter(|leader| !leader.unknown) {
                let followers = flights.get_mut(&leader.intent.key).expect("what waits is in flight");
                for follower in followers.extract_if(.., |follower| late(follower)) {
                    line.followers -= 1;
                    self.waiting -= 1;
                    replies.push((follower.reply, Answer::DeadlinePassed));
                }
            }
        }
        let (gone, left): (VecDeque<_>, VecDeque<_>) = line.waiting.drain(..).partition(late);
        line.waiting = left;
        if line.waiting.is_empty() {
            self.turns.retain(|turn| *turn != tenant);
        }
        for pending in gone {
            self.waiting -= 1;
            self.running += 1;
            self.finish(pending, Answer::DeadlinePassed, replies);
        }
        self.forget_line(tenant);
    }

    /// The first follower takes the place of an intent that ended without a stub.
    fn promote(&mut self, tenant: TenantId, key: Key, mut followers: Vec<Pending>, unknown: bool) -> bool {
        let mut first = followers.remove(0);
        // The same key: whatever the lost COMMIT did, it did for this one too.
        first.unknown |= unknown;
        let line = self.lines.entry(tenant).or_default();
        line.followers += followers.len();
        self.flights.entry(tenant).or_default().insert(key, followers);
        if line.waiting.is_empty() && !line.aside {
            self.turns.push_back(tenant);
        }
        line.waiting.push_front(first);
        true
    }

    fn forget_line(&mut self, tenant: TenantId) {
        if self
            .lines
            .get(&tenant)
            .is_some_and(|line| line.waiting.is_empty() && line.followers == 0 && !line.aside)
        {
            self.lines.remove(&tenant);
        }
    }
}

/// What a batch weighs.
pub(crate) fn weight(batch: &[Pending]) -> usize {
    batch.iter().map(|pending| pending.intent.weight).sum()
}

/// What a stub that is there already tells a submission of the same key.
pub(crate) fn replay(pending: &Pending, stub: &Stub) -> Answer {
    match pending.intent.hashes.differs_from(&stub.hashes) {
        Some(field) => Answer::Mismatch {
            field: field.to_owned(),
        },
        None if stub.origin == pending.origin => Answer::First(stub.clone()),
        None => Answer::Replayed(stub.clone()),
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
