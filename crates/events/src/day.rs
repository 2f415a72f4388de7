//! Days of raw events: which have a partition, and how the others come to have one.

use std::collections::BTreeSet;
use std::time::Duration;

use counterfoil_pg::{Database, Error, Role, Scope, attempt};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::RwLock;
use tokio::sync::Notify;
use uuid::Uuid;

use crate::event::Event;
use crate::{clock, fold, id, store};

const MS_PER_DAY: i64 = 86_400_000;

/// Partitions are made for yesterday, today, and this many days ahead. A UUIDv7 may be a day and an hour
/// ahead.
const AHEAD: i32 = 3;

/// Making a partition waits this long for its locks, then lets others pass and is tried again later.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

/// Events that are taken in from the spill table in one transaction.
const TAKEN: i64 = 1_000;

/// A day of ids, counted from 1970-01-01 UTC.
pub(crate) type Day = i32;

pub(crate) fn of(id: Uuid) -> Day {
    Day::try_from(id::millis(id) / MS_PER_DAY).expect("48 bits of milliseconds are 3,257,812 days")
}

fn date(day: Day) -> Option<Date> {
    let midnight = Timestamp::from_millisecond(i64::from(day) * MS_PER_DAY).ok()?;
    Some(midnight.to_zoned(TimeZone::UTC).date())
}

fn number(date: Date) -> Option<Day> {
    let midnight = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
    Day::try_from(midnight.as_millisecond() / MS_PER_DAY).ok()
}

/// The least and the greatest id of a day.
fn ids(day: Day) -> (Uuid, Uuid) {
    let start = i64::from(day) * MS_PER_DAY;
    id::range(start, start + MS_PER_DAY - 1)
}

/// Which days have a partition, as far as this server knows.
///
/// To believe that one is missing which has come meanwhile costs its events a stay in the spill table. To
/// believe in one that is gone costs a failed transaction, after which the list is read again.
#[derive(Debug, Default)]
pub struct Days {
    known: RwLock<BTreeSet<Day>>,
    missing: Notify,
}

/// What a pass did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    pub made: Vec<Date>,
    /// Events taken in from the spill table, and those of them that were known already.
    pub taken: u64,
    pub known: u64,
    /// There may be more to take in.
    pub more: bool,
}

impl Days {
    pub(crate) fn has(&self, day: Day) -> bool {
        self.known.read().contains(&day)
    }

    /// Resolves when events of a day without a partition have come.
    pub async fn missing(&self) {
        self.missing.notified().await;
    }

    pub(crate) fn miss(&self) {
        self.missing.notify_one();
    }

    /// Reads the list again.
    ///
    /// # Errors
    /// If the database cannot be asked.
    pub async fn refresh(&self, database: &Database) -> Result<(), Error> {
        let scope = Scope::Installation;
        let tx = database.pool(Role::Ops).begin(&scope).await?;
        let days = store::days(&scope, &tx).await?;
        tx.rollback().await;
        *self.known.write() = days.into_iter().filter_map(number).collect();
        Ok(())
    }

    /// One pass: makes the partitions of yesterday to the days ahead, then that of the first day in the
    /// spill table, and takes in what waits for it. May be cut off anywhere, and run by several servers.
    ///
    /// # Errors
    /// What PostgreSQL refused. A lock that was not free is none: it is tried again by the next pass.
    pub async fn keep(&self, database: &Database) -> Result<Kept, Error> {
        let mut kept = Kept::default();
        self.refresh(database).await?;
        let (now, first) = ahead(database).await?;
        let today = Day::try_from(now.as_millisecond().div_euclid(MS_PER_DAY)).unwrap_or_default();
        let spilled = first.map(of);
        let mut wanted: Vec<_> = (today - 1..=today + AHEAD).chain(spilled).collect();
        wanted.dedup();
        for day in wanted {
            if !self.has(day) && make(database, day).await? {
                kept.made.extend(date(day));
            }
        }
        if !kept.made.is_empty() {
            self.refresh(database).await?;
        }
        if let Some(day) = spilled.filter(|day| self.has(*day)) {
            let (taken, new) = take_in(database, day).await?;
            kept.taken = taken;
            kept.known = taken - new;
            // Also where another server took them: then the next first one may be of another day.
            kept.more = taken > 0;
        }
        Ok(kept)
    }

    /// Makes partitions for days of the past or future, for an import that knows what it needs.
    ///
    /// # Errors
    /// If one could not be made.
    pub async fn make(&self, database: &Database, days: impl IntoIterator<Item = Timestamp>) -> Result<(), Error> {
        let days: BTreeSet<_> = days
            .into_iter()
            .filter_map(|at| Day::try_from(at.as_millisecond().div_euclid(MS_PER_DAY)).ok())
            .filter(|day| !self.has(*day))
            .collect();
        if days.is_empty() {
            return Ok(());
        }
        for day in days {
            make(database, day).await?;
        }
        self.refresh(database).await
    }
}

/// The database's clock, and the least id in the spill table.
async fn ahead(database: &Database) -> Result<(Timestamp, Option<Uuid>), Error> {
    let scope = Scope::Installation;
    let tx = database.pool(Role::Ops).begin(&scope).await?;
    let (now, first) = futures_util::try_join!(store::clock(&scope, &tx), store::spill_first(&scope, &tx))?;
    tx.rollback().await;
    Ok((now, first))
}

/// Makes the partition of a day. `false`: it is there, or somebody was in the way of its locks.
///
/// By CREATE and ATTACH: CREATE … PARTITION OF takes an ACCESS EXCLUSIVE lock on the parent, and every
/// batch would wait for it. ATTACH takes SHARE UPDATE EXCLUSIVE, which lets them pass.
async fn make(database: &Database, day: Day) -> Result<bool, Error> {
    let Some(date) = date(day) else { return Ok(false) };
    let (least, _) = ids(day);
    let (next, _) = ids(day + 1);
    let name = format!("event_{}", date.strftime("%Y%m%d"));
    let (scope, name) = (&Scope::Installation, name.as_str());
    let made = database.pool(Role::Owner).try_once(scope, |tx| {
        attempt(async move {
            tx.set_lock_timeout(LOCK_TIMEOUT).await?;
            // Two servers may come at once: the row makes the second wait for the first.
            if !store::day_add(scope, tx, date).await? {
                return Ok(false);
            }
            tx.batch(&format!(
                "CREATE TABLE counterfoil.{name}
                    (LIKE counterfoil.event INCLUDING ALL)
                    WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_freeze_min_age = 0);
                 ALTER TABLE counterfoil.{name} ENABLE ROW LEVEL SECURITY;
                 ALTER TABLE counterfoil.{name} FORCE ROW LEVEL SECURITY;
                 ALTER TABLE counterfoil.event ATTACH PARTITION counterfoil.{name}
                    FOR VALUES FROM ('{least}') TO ('{next}');"
            ))
            .await?;
            Ok(true)
        })
    });
    let made = made.await?;
    if made.is_none() {
        tracing::warn!(%date, "a partition of events could not be made yet: somebody holds a lock");
    }
    Ok(made == Some(true))
}

/// Takes events of a day in from the spill table, by the statement that stores all others: what is known is
/// not counted again. Returns how many, and how many of them were new.
async fn take_in(database: &Database, day: Day) -> Result<(u64, u64), Error> {
    let scope = Scope::Installation;
    let tx = database.pool(Role::Ops).begin(&scope).await?;
    let done = async {
        let events = store::spill_take(&scope, &tx, ids(day), TAKEN).await?;
        if events.is_empty() {
            return Ok((0, 0));
        }
        let events: Vec<&Event> = events.iter().collect();
        let slot = fold::slot(clock::now());
        let (new, deleted) = futures_util::join!(
            store::insert(&scope, &tx, &events, slot),
            store::spill_delete(&scope, &tx, &events)
        );
        let new = match new? {
            store::New::All => events.len(),
            store::New::Only(new) => new.len(),
        };
        Ok::<_, Error>((deleted?, new as u64))
    };
    match done.await {
        Ok(done) => {
            // Of a lost reply nothing needs to be known: what was not taken in is still there.
            tx.commit().await.map_err(|error| error.source)?;
            Ok(done)
        }
        Err(error) => {
            tx.rollback().await;
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_and_its_ids_belong_together() {
        let day = number("2026-11-30".parse().unwrap()).unwrap();
        assert_eq!(date(day), Some("2026-11-30".parse().unwrap()));
        let (least, most) = ids(day);
        assert_eq!((of(least), of(most)), (day, day));
        let (next, _) = ids(day + 1);
        assert_eq!(most.as_u128() + 1, next.as_u128());
    }

    #[test]
    fn the_last_day_that_ids_reach_can_be_named() {
        assert_eq!(of(Uuid::max()), 3_257_812);
        assert!(date(3_257_812).is_none_or(|date| date.year() <= 9999));
    }
}
