//! Applies migrations, and says which are.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use counterfoil_pg::{AdvisoryLock, Class, Database, Role, Scope, Tx, Verdict};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::store::{self, Checksum, Recorded};
use crate::{Error, MIGRATIONS};

/// How long a statement of a migration waits for a lock. Whoever comes after us in that queue waits
/// as well, so it is short, and the migration is tried again.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long all of it goes on trying.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two attempts, before jitter.
const PAUSE: Duration = Duration::from_millis(200);

/// A migration as this program knows it.
struct Known {
    name: &'static str,
    sql: &'static str,
    checksum: Checksum,
}

/// What is known of one migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub name: String,
    pub state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Applied(Timestamp),
    Pending,
    /// Applied, with another text than the one this program has.
    Changed(Timestamp),
    /// Applied, and not known to this program: a newer one did it.
    Newer(Timestamp),
}

/// Applies, as the owner, what has not been applied yet, in the order given (our own come first), and
/// returns the names of what it applied.
///
/// Any number of processes may do so at once. Each migration is one transaction.
pub async fn run(db: &Database, migrations: &[&[(&'static str, &'static str)]]) -> Result<Vec<&'static str>, Error> {
    let known = known(migrations);
    let deadline = Instant::now() + PATIENCE;
    let mut applied = Vec::new();
    loop {
        let recorded = read(db, Role::Owner).await?.unwrap_or_default();
        refuse_foreign(db, &known, &recorded)?;
        let Some(next) = first_pending(&known, &recorded) else {
            return Ok(applied);
        };
        match apply(db, &known, next, deadline).await? {
            Applied::Here => {
                tracing::info!(migration = next.name, "applied");
                applied.push(next.name);
            }
            Applied::ByOthers => {}
        }
    }
}

/// The state of every migration that this program knows or that the database has recorded.
pub async fn status(db: &Database, migrations: &[&[(&'static str, &'static str)]]) -> Result<Vec<Status>, Error> {
    let recorded = read(db, Role::Owner).await?.unwrap_or_default();
    Ok(compare(&known(migrations), &recorded))
}

/// For servers, before they serve: the database is exactly as this program needs it, or one sentence
/// says what to do.
pub async fn require(db: &Database, migrations: &[&[(&'static str, &'static str)]]) -> Result<(), Error> {
    let known = known(migrations);
    let dbname = || db.settings().dbname.clone();
    let Some(recorded) = read(db, Role::Ops).await? else {
        return Err(Error::Uninitialised { dbname: dbname() });
    };
    refuse_foreign(db, &known, &recorded)?;
    let missing: Vec<_> = known
        .iter()
        .filter(|known| !recorded.iter().any(|done| done.name == known.name))
        .collect();
    match missing.first() {
        None => Ok(()),
        Some(first) => Err(Error::Behind {
            dbname: dbname(),
            missing: missing.len(),
            first: first.name.to_owned(),
        }),
    }
}

fn known(migrations: &[&[(&'static str, &'static str)]]) -> Vec<Known> {
    let mut names = BTreeSet::new();
    let all = [MIGRATIONS].into_iter().chain(migrations.iter().copied()).flatten();
    all.map(|&(name, sql)| {
        assert!(names.insert(name), "two migrations are called {name}");
        Known {
            name,
            sql,
            checksum: Sha256::digest(sql.as_bytes()).into(),
        }
    })
    .collect()
}

fn compare(known: &[Known], recorded: &[Recorded]) -> Vec<Status> {
    let ours = known.iter().map(|known| {
        let state = match recorded.iter().find(|done| done.name == known.name) {
            None => State::Pending,
            Some(done) if done.checksum == known.checksum => State::Applied(done.applied_at),
            Some(done) => State::Changed(done.applied_at),
        };
        Status {
            name: known.name.to_owned(),
            state,
        }
    });
    let foreign = recorded
        .iter()
        .filter(|done| !known.iter().any(|known| known.name == done.name))
        .map(|done| Status {
            name: done.name.clone(),
            state: State::Newer(done.applied_at),
        });
    ours.chain(foreign).collect()
}

fn first_pending<'a>(known: &'a [Known], recorded: &[Recorded]) -> Option<&'a Known> {
    known
        .iter()
        .find(|known| !recorded.iter().any(|done| done.name == known.name))
}

/// Refuses a database that another program has taken somewhere we do not know.
fn refuse_foreign(db: &Database, known: &[Known], recorded: &[Recorded]) -> Result<(), Error> {
    let dbname = || db.settings().dbname.clone();
    let states = compare(known, recorded);
    // A newer program may also have changed what we know; that it is newer is the thing to say.
    if let Some(newer) = states.iter().find(|status| matches!(status.state, State::Newer(_))) {
        return Err(Error::Newer {
            dbname: dbname(),
            name: newer.name.clone(),
        });
    }
    match states.iter().find(|status| matches!(status.state, State::Changed(_))) {
        Some(changed) => Err(Error::Changed {
            dbname: dbname(),
            name: changed.name.clone(),
        }),
        None => Ok(()),
    }
}

async fn read(db: &Database, role: Role) -> Result<Option<Vec<Recorded>>, Error> {
    let tx = db.pool(role).begin(&Scope::Installation).await?;
    let recorded = store::recorded(&tx).await?;
    tx.rollback().await;
    Ok(recorded)
}

enum Applied {
    Here,
    ByOthers,
}

/// Why one attempt came to nothing.
enum Setback {
    /// Somebody else is migrating.
    Locked,
    Failed(counterfoil_pg::Error),
    /// The reply to COMMIT was lost. The next attempt takes the lock, which waits for our twin, and
    /// then looks whether the migration is recorded.
    Lost(counterfoil_pg::Error),
    Refused(Error),
}

impl From<counterfoil_pg::Error> for Setback {
    fn from(error: counterfoil_pg::Error) -> Self {
        Self::Failed(error)
    }
}

async fn apply(db: &Database, known: &[Known], next: &Known, deadline: Instant) -> Result<Applied, Error> {
    let mut unknown = false;
    loop {
        let setback = match attempt(db, known, next).await {
            Ok(applied) => return Ok(applied),
            Err(setback) => setback,
        };
        let late = Instant::now() >= deadline;
        let name = || next.name.to_owned();
        match setback {
            Setback::Refused(error) => return Err(error),
            Setback::Locked if late => {
                return Err(Error::Busy {
                    dbname: db.settings().dbname.clone(),
                    waited: PATIENCE,
                });
            }
            Setback::Locked => {}
            Setback::Lost(source) if late => return Err(Error::Unknown { name: name(), source }),
            Setback::Lost(_) => unknown = true,
            Setback::Failed(source) if late || !is_passing(source.class()) => {
                return Err(if unknown {
                    Error::Unknown { name: name(), source }
                } else {
                    Error::Migration { name: name(), source }
                });
            }
            Setback::Failed(source) => {
                tracing::warn!(migration = next.name, error = %source, "will be tried again");
            }
        }
        tokio::time::sleep(PAUSE.mul_f64(rand::random_range(0.5..1.5))).await;
    }
}

fn is_passing(class: Class) -> bool {
    matches!(class, Class::Retry | Class::Reconnect | Class::Reprepare)
}

/// One transaction: the lock, the migration, its record.
async fn attempt(db: &Database, known: &[Known], next: &Known) -> Result<Applied, Setback> {
    let tx = db.pool(Role::Owner).begin(&Scope::Installation).await?;
    let outcome = within(&tx, db, known, next).await;
    match outcome {
        Ok(Applied::Here) => match tx.commit().await {
            Ok(()) => Ok(Applied::Here),
            Err(lost) if lost.verdict == Verdict::Unknown => Err(Setback::Lost(lost.source)),
            Err(refused) => Err(Setback::Failed(refused.source)),
        },
        other => {
            tx.rollback().await;
            other
        }
    }
}

async fn within(tx: &Tx, db: &Database, known: &[Known], next: &Known) -> Result<Applied, Setback> {
    if !tx.try_lock_exclusive(AdvisoryLock::Migrations).await? {
        return Err(Setback::Locked);
    }
    // Read again under the lock: what was pending may have been applied meanwhile, also by a newer
    // program.
    let recorded = store::recorded(tx).await?.unwrap_or_default();
    refuse_foreign(db, known, &recorded).map_err(Setback::Refused)?;
    if recorded.iter().any(|done| done.name == next.name) {
        return Ok(Applied::ByOthers);
    }
    tx.set_lock_timeout(LOCK_TIMEOUT).await?;
    tx.batch(next.sql).await?;
    store::record(tx, next.name, &next.checksum).await?;
    Ok(Applied::Here)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[(&str, &str)] = &[("x/0001_a", "SELECT 1"), ("x/0002_b", "SELECT 2")];

    fn done(name: &str, sql: &str) -> Recorded {
        Recorded {
            name: name.to_owned(),
            checksum: Sha256::digest(sql.as_bytes()).to_vec(),
            applied_at: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn our_own_come_first_and_nothing_is_lost() {
        let names: Vec<_> = known(&[TWO]).iter().map(|known| known.name).collect();
        assert_eq!(names, ["migrate/0001_migration", "x/0001_a", "x/0002_b"]);
    }

    #[test]
    #[should_panic(expected = "two migrations are called x/0001_a")]
    fn a_name_is_taken_once() {
        known(&[TWO, TWO]);
    }

    #[test]
    fn each_state_is_told_apart() {
        let recorded = [
            done("x/0001_a", "SELECT 1"),
            done("x/0002_b", "SELECT 22"),
            done("x/0003_c", ""),
        ];
        let at = Timestamp::UNIX_EPOCH;
        let states: Vec<_> = compare(&known(&[TWO]), &recorded)
            .into_iter()
            .map(|status| status.state)
            .collect();
        assert_eq!(
            states,
            [State::Pending, State::Applied(at), State::Changed(at), State::Newer(at)]
        );
        assert_eq!(
            first_pending(&known(&[TWO]), &recorded).map(|next| next.name),
            Some("migrate/0001_migration")
        );
    }
}
