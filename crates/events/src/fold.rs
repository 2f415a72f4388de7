//! Deltas: where they are written, and how they become part of the rollup.

use std::time::Duration;

use counterfoil_pg::{AdvisoryLock, Database, Error, Role, Scope, attempt};
use jiff::Timestamp;

use crate::{clock, store};

/// Slots of the table of deltas.
const SLOTS: i64 = 6;
/// How long one is written.
const SLOT_SECONDS: i64 = 300;

/// Emptying a slot waits this long for those who read it, then lets them pass and tries again later.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// The slot that a writer writes now. Which one is only a matter of tidiness: a delta is folded and read
/// wherever it is, so clocks may differ and transactions may last.
pub(crate) fn slot(now: Timestamp) -> i16 {
    i16::try_from(now.as_second().div_euclid(SLOT_SECONDS).rem_euclid(SLOTS)).expect("six slots")
}

/// Folds deltas into the rollup. A report sums both in one statement, so nobody waits for this.
#[derive(Clone)]
pub struct Fold {
    database: Database,
}

impl Fold {
    #[must_use]
    pub fn new(database: Database) -> Self {
        Self { database }
    }

    /// One pass over all slots. Returns how many rows of the rollup it changed. Another server that folds
    /// has it do nothing.
    ///
    /// # Errors
    /// What PostgreSQL refused.
    pub async fn pass(&self) -> Result<u64, Error> {
        let mut changed = 0;
        for slot in 0..SLOTS {
            let slot = i16::try_from(slot).expect("six slots");
            match self.fold(slot).await? {
                Some(rows) => changed += rows,
                None => return Ok(changed),
            }
        }
        self.empty(clock::now()).await?;
        Ok(changed)
    }

    async fn fold(&self, slot: i16) -> Result<Option<u64>, Error> {
        let scope = Scope::Installation;
        let tx = self.database.pool(Role::Ops).begin(&scope).await?;
        let done = async {
            // Two that fold would wait for each other's rows of the rollup.
            if !tx.try_lock_exclusive(AdvisoryLock::Fold).await? {
                return Ok(None);
            }
            store::fold(&scope, &tx, slot).await.map(Some)
        };
        match done.await {
            Ok(Some(rows)) if rows > 0 => {
                // Of a lost reply nothing needs to be known: what was not folded is still there.
                tx.commit().await.map_err(|error| error.source)?;
                Ok(Some(rows))
            }
            done => {
                tx.rollback().await;
                done
            }
        }
    }

    /// Truncates slots whose time was over a slot ago and in which nothing is left. What was deleted there
    /// was deleted minutes ago, which matters to those only who hold a snapshot of before: they would not
    /// find it any more. Our own statements do not.
    async fn empty(&self, now: Timestamp) -> Result<(), Error> {
        let current = i64::from(slot(now));
        for slot in (2..SLOTS - 1).map(|before| (current - before).rem_euclid(SLOTS)) {
            self.truncate(i16::try_from(slot).expect("six slots")).await?;
        }
        Ok(())
    }

    async fn truncate(&self, slot: i16) -> Result<(), Error> {
        let scope = &Scope::Installation;
        let owner = self.database.pool(Role::Owner);
        let emptied = owner.try_once(scope, |tx| {
            attempt(async move {
                if !store::has_pages(scope, tx, slot).await? {
                    return Ok(false);
                }
                tx.set_lock_timeout(LOCK_TIMEOUT).await?;
                // First the lock, then a statement of its own, whose snapshot shows what all before it committed.
                tx.batch(&format!(
                    "LOCK TABLE counterfoil.rollup_delta_{slot} IN ACCESS EXCLUSIVE MODE"
                ))
                .await?;
                if store::any_delta(scope, tx, slot).await? {
                    return Ok(false);
                }
                tx.batch(&format!("TRUNCATE counterfoil.rollup_delta_{slot}")).await?;
                Ok(true)
            })
        });
        emptied.await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_take_turns_also_before_1970() {
        let at = |second| slot(Timestamp::from_second(second).unwrap());
        assert_eq!([at(0), at(299), at(300), at(1_799), at(1_800)], [0, 0, 1, 5, 0]);
        assert_eq!(at(-1), 5);
    }
}
