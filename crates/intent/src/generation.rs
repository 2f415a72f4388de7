//! Generations of stubs: which one a key belongs to, and how they come and go.

use std::time::Duration;

use counterfoil_pg::{AdvisoryLock, Class, Database, Error, Role, Scope, attempt};
use jiff::Timestamp;

use crate::key::Key;
use crate::store::{
    GENERATION_ADD, GENERATION_DROP, GENERATION_LIST, GENERATION_REMOVE, GENERATION_SET_OPEN, GENERATION_SETTINGS,
    RETENTION_SET,
};

/// A UUIDv7 key this far ahead of the database's clock is refused: its generation is not there yet.
const AHEAD: Duration = Duration::from_secs(3600);

/// How long rotation keeps trying for the exclusive lock in one pass.
const TRY_FOR: Duration = Duration::from_secs(2);

/// DDL on the stub table waits this long for readers, then lets them pass and tries again later.
const DDL_LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// The rule that maps keys to generations. A generation is one retention long.
#[derive(Debug, Clone, Copy)]
pub struct Generations {
    retention_ms: i64,
}

/// What the age of a key says before any stub is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A UUIDv7 key: the generation follows from its time.
    Of(i32),
    /// Any other key: the open generation.
    Open,
}

/// What a pass of rotation did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rotation {
    pub added: Vec<i32>,
    pub opened: Option<i32>,
    pub dropped: Vec<i32>,
    /// Something is due, but a lock for it was not free: it is tried again next time.
    pub postponed: bool,
}

impl Generations {
    /// Reads the retention that was set when the schema was made.
    pub async fn load(database: &Database) -> Result<Self, Error> {
        let tx = database.pool(Role::Ops).begin(&Scope::Installation).await?;
        let row = tx.query_one(GENERATION_SETTINGS, &[]).await?;
        let retention_ms = row.get(1);
        tx.rollback().await;
        Ok(Self { retention_ms })
    }

    /// Sets the retention of a new installation. Once a generation is there it stays as it is: the
    /// number of a key's generation follows from it.
    pub async fn set_retention(database: &Database, retention: Duration) -> Result<bool, Error> {
        let millis = i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
        let tx = database.pool(Role::Owner).begin(&Scope::Installation).await?;
        let set = tx.execute(RETENTION_SET, &[&millis]).await? == 1;
        tx.commit().await.map_err(|error| error.source)?;
        Ok(set)
    }

    /// How long a stub is kept at the least.
    #[must_use]
    pub fn retention(self) -> Duration {
        Duration::from_millis(self.retention_ms.unsigned_abs())
    }

    pub(crate) fn at(self, time: Timestamp) -> i32 {
        i32::try_from(time.as_millisecond().div_euclid(self.retention_ms)).unwrap_or(i32::MAX)
    }

    pub(crate) fn place(self, key: &Key) -> Place {
        key.v7_time().map_or(Place::Open, |time| Place::Of(self.at(time)))
    }

    /// Whether a UUIDv7 key is older than retention: its stub may have been dropped.
    pub(crate) fn too_old(self, key: &Key, now: Timestamp) -> bool {
        key.v7_time()
            .is_some_and(|time| now.as_millisecond() - time.as_millisecond() > self.retention_ms)
    }

    /// Whether the generation of a UUIDv7 key has been dropped. By its time it is too old as well,
    /// unless the database's clock has stepped back since.
    pub(crate) fn is_dropped(self, key: &Key, dropped: i32) -> bool {
        matches!(self.place(key), Place::Of(generation) if generation <= dropped)
    }

    /// Whether a UUIDv7 key is too far ahead: more than an hour, or than retention if that is shorter.
    pub(crate) fn ahead(self, key: &Key, now: Timestamp) -> bool {
        let most = self
            .retention_ms
            .min(i64::try_from(AHEAD.as_millis()).expect("an hour fits"));
        key.v7_time()
            .is_some_and(|time| time.as_millisecond() - now.as_millisecond() > most)
    }

    /// One idempotent pass: makes the partitions of now and next, opens the generation of now, and
    /// drops those that nothing within retention can be in.
    pub async fn rotate(self, database: &Database) -> Result<Rotation, Error> {
        let mut done = Rotation::default();
        let (now, alive) = self.alive(database).await?;
        let current = self.at(now);
        self.add_around(database, current, &alive, &mut done).await?;
        if open_of(&alive).is_none_or(|open| open < current) {
            if self.open(database, current).await? {
                done.opened = Some(current);
            } else {
                done.postponed = true;
            }
        }
        for generation in self.expired(&alive, now) {
            if self.drop(database, generation).await? {
                done.dropped.push(generation);
            } else {
                done.postponed = true;
            }
        }
        Ok(done)
    }

    /// What a batch needs whose partition is missing: the partitions of now and next, and in a new
    /// installation an open generation. All else is left to [`Self::rotate`].
    pub(crate) async fn ensure(self, database: &Database) -> Result<(), Error> {
        let (now, alive) = self.alive(database).await?;
        let current = self.at(now);
        self.add_around(database, current, &alive, &mut Rotation::default())
            .await?;
        if open_of(&alive).is_none() {
            self.open(database, current).await?;
        }
        Ok(())
    }

    async fn add_around(
        self,
        database: &Database,
        current: i32,
        alive: &[(i32, Option<Timestamp>)],
        done: &mut Rotation,
    ) -> Result<(), Error> {
        // The one before is there for keys that were made in it and are sent late.
        for generation in current - 1..=current + 1 {
            if alive.iter().any(|(there, _)| *there == generation) {
                continue;
            }
            match self.add(database, generation).await {
                Ok(true) => done.added.push(generation),
                Ok(false) => {}
                // Another server is making it, or somebody has the table locked.
                Err(error) if error.class() == Class::Retry => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, generation, "a partition of stubs could not be made yet");
                    done.postponed = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Generations whose every stub is older than retention: the clock has passed the end of the
    /// generation by that much, for keys that carry a time; and so long has the one after it been
    /// open, for keys that do not.
    fn expired(self, alive: &[(i32, Option<Timestamp>)], now: Timestamp) -> Vec<i32> {
        let older = |time: Timestamp| now.as_millisecond() - time.as_millisecond() > self.retention_ms;
        let mut out = Vec::new();
        for (generation, _) in alive {
            let end = (i64::from(*generation) + 1) * self.retention_ms;
            let past = now.as_millisecond() - end > self.retention_ms;
            let successor = alive
                .iter()
                .filter(|(later, _)| later > generation)
                .find_map(|(_, opened)| *opened);
            if past && successor.is_some_and(older) {
                out.push(*generation);
            }
        }
        out
    }

    async fn alive(self, database: &Database) -> Result<(Timestamp, Vec<(i32, Option<Timestamp>)>), Error> {
        let tx = database.pool(Role::Owner).begin(&Scope::Installation).await?;
        let (settings, rows) =
            futures_util::try_join!(tx.query_one(GENERATION_SETTINGS, &[]), tx.query(GENERATION_LIST, &[]))?;
        tx.rollback().await;
        Ok((
            settings.get(0),
            rows.iter().map(|row| (row.get(0), row.get(1))).collect(),
        ))
    }

    /// Makes a partition by CREATE and ATTACH: CREATE … PARTITION OF would take an ACCESS
    /// EXCLUSIVE lock on the parent, and every batch would wait for it. `false`: it is there, or was
    /// dropped and does not come back.
    async fn add(self, database: &Database, generation: i32) -> Result<bool, Error> {
        let tx = database.pool(Role::Owner).begin(&Scope::Installation).await?;
        tx.set_lock_timeout(DDL_LOCK_TIMEOUT).await?;
        // Two servers may come at once: the row makes the second wait for the first.
        if tx.execute(GENERATION_ADD, &[&generation]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        tx.batch(&format!(
            "CREATE TABLE counterfoil.stub_{generation}
                (LIKE counterfoil.stub INCLUDING ALL)
                WITH (autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_freeze_min_age = 0);
             ALTER TABLE counterfoil.stub_{generation} ENABLE ROW LEVEL SECURITY;
             ALTER TABLE counterfoil.stub_{generation} FORCE ROW LEVEL SECURITY;
             ALTER TABLE counterfoil.stub ATTACH PARTITION counterfoil.stub_{generation}
                FOR VALUES IN ({generation});"
        ))
        .await?;
        tx.commit().await.map_err(|error| error.source)?;
        Ok(true)
    }

    /// Opens a generation under the exclusive lock: a batch that has read the open generation, and
    /// has looked for its keys there, must have inserted its stubs before another one opens.
    /// The lock is tried for, never queued for: a queued exclusive lock would stop every batch
    /// behind the slowest one.
    async fn open(self, database: &Database, generation: i32) -> Result<bool, Error> {
        let deadline = std::time::Instant::now() + TRY_FOR;
        while std::time::Instant::now() < deadline {
            let tx = database.pool(Role::Owner).begin(&Scope::Installation).await?;
            if tx.try_lock_exclusive(AdvisoryLock::StubGenerations).await? {
                let opened = tx.execute(GENERATION_SET_OPEN, &[&generation]).await? == 1;
                tx.commit().await.map_err(|error| error.source)?;
                return Ok(opened);
            }
            tx.rollback().await;
            tokio::time::sleep(Duration::from_millis(rand::random_range(1..5))).await;
        }
        Ok(false)
    }

    async fn drop(self, database: &Database, generation: i32) -> Result<bool, Error> {
        let owner = database.pool(Role::Owner);
        let dropped = owner.try_once(&Scope::Installation, |tx| {
            attempt(async move {
                tx.set_lock_timeout(DDL_LOCK_TIMEOUT).await?;
                if !tx.try_lock_exclusive(AdvisoryLock::StubGenerations).await? {
                    return Ok(false);
                }
                // First of all: one that adds it at this moment waits for this row before it waits for any.
                tx.execute(GENERATION_DROP, &[&generation]).await?;
                if tx.execute(GENERATION_REMOVE, &[&generation]).await? == 0 {
                    return Ok(true);
                }
                tx.batch(&format!("DROP TABLE counterfoil.stub_{generation}")).await?;
                Ok(true)
            })
        });
        // Nothing: a reader was in the way for longer than the lock timeout.
        Ok(dropped.await? == Some(true))
    }
}

/// The open generation: the highest that was ever opened.
fn open_of(alive: &[(i32, Option<Timestamp>)]) -> Option<i32> {
    let opened = alive.iter().filter(|(_, opened)| opened.is_some());
    opened.map(|(generation, _)| *generation).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const MONTH: Generations = Generations {
        retention_ms: 30 * 86_400_000,
    };

    fn v7(millis: i64) -> Key {
        Key::Uuid(uuid::Builder::from_unix_timestamp_millis(millis.unsigned_abs(), &[7; 10]).into_uuid())
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(millis).unwrap()
    }

    #[test]
    fn a_v7_key_belongs_to_the_generation_of_its_own_time() {
        let start = 692 * MONTH.retention_ms;
        assert_eq!(MONTH.place(&v7(start)), Place::Of(692));
        assert_eq!(MONTH.place(&v7(start - 1)), Place::Of(691));
        assert_eq!(MONTH.place(&Key::Uuid(Uuid::nil())), Place::Open);
        assert_eq!(MONTH.place(&Key::Text("x".into())), Place::Open);
    }

    #[test]
    fn a_key_is_too_old_after_retention_and_ahead_after_an_hour() {
        let now = 692 * MONTH.retention_ms + 5;
        assert!(!MONTH.too_old(&v7(now - MONTH.retention_ms), at(now)));
        assert!(MONTH.too_old(&v7(now - MONTH.retention_ms - 1), at(now)));
        assert!(!MONTH.ahead(&v7(now + 3_600_000), at(now)));
        assert!(MONTH.ahead(&v7(now + 3_600_001), at(now)));
    }

    #[test]
    fn a_generation_is_dropped_only_when_every_key_in_it_is_too_old() {
        let l = MONTH.retention_ms;
        // Generation 11 opened a little late: text keys went into 10 until then.
        let late = 11 * l + 500;
        let alive = [(10, Some(at(10 * l))), (11, Some(at(late))), (12, Some(at(12 * l)))];
        assert_eq!(MONTH.expired(&alive, at(12 * l + 1)), Vec::<i32>::new());
        assert_eq!(MONTH.expired(&alive, at(late + l)), Vec::<i32>::new());
        assert_eq!(MONTH.expired(&alive, at(late + l + 1)), vec![10]);
    }
}
