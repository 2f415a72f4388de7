//! Outcome rows: how to learn what became of a COMMIT whose reply was lost.
//!
//! A transaction without stubs writes a token of its own as its last statement. If COMMIT's reply
//! is lost, somebody else *inserts the same token*. PostgreSQL settles the rest:
//!
//! - The twin is still in progress: the insert waits for it, by the unique index.
//! - The twin committed: its row is there, and says `committed`.
//! - The twin rolled back, or never will commit: the insert succeeds, and says `rolled_back`. Once
//!   that is committed the twin cannot come after it.
//!
//! `pg_xact_status` would be cheaper and cannot be believed: after a crash that lost unflushed WAL,
//! or a failover, the transaction number may have been given to somebody else.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::retry::Backoff;
use crate::settings::Role;
use crate::{AdvisoryLock, Class, CommitError, Database, Error, Pool, Scope, Tx, Verdict, statements};

/// Outcome rows are kept for this many whole days; then their partition is dropped.
pub(crate) const DAYS_KEPT: i64 = 2;
/// Partitions are made for today and this many days ahead.
pub(crate) const DAYS_AHEAD: i64 = 2;
/// How long one attempt waits for the twin to end.
const TWIN_PATIENCE: Duration = Duration::from_secs(5);
/// Making or dropping a partition waits this long for its locks, and holds everybody up behind it
/// as long.
const PARTITION_PATIENCE: Duration = Duration::from_millis(200);

const MS_PER_DAY: i64 = 86_400_000;

/// Names the outcome of one attempt at one transaction. A UUIDv7: its time decides its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(Uuid);

impl Token {
    pub(crate) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::at(now.as_millis() as u64)
    }

    fn at(unix_ms: u64) -> Self {
        Self(uuid::Builder::from_unix_timestamp_millis(unix_ms, &rand::random()).into_uuid())
    }

    /// Days since 1970-01-01 UTC.
    fn day(self) -> i64 {
        let ms = (self.0.as_u128() >> 80) as i64;
        ms / MS_PER_DAY
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Token {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// One attempt at a transaction, for [`Pool::run`]; made by [`attempt`].
///
/// It would be an async closure (`impl AsyncFn(&Tx)`), but today's compiler cannot show that what
/// such a closure returns is `Send` as soon as it captures a reference, and every request is
/// answered in a task of its own. Naming `'env` in the type says that what the closure borrows
/// outlives the transaction.
pub struct Attempt<'env, 'a, T>(
    Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>,
    PhantomData<&'a &'env ()>,
);

/// Makes an [`Attempt`] of an async block.
pub fn attempt<'env, 'a, T>(work: impl Future<Output = Result<T, Error>> + Send + 'a) -> Attempt<'env, 'a, T> {
    Attempt(Box::pin(work), PhantomData)
}

impl Pool {
    /// Runs a whole transaction until it is committed, or fails for a reason that another attempt
    /// does not mend. `work` may run several times; each time all it did before is undone.
    ///
    /// For transactions without stubs: when the reply to COMMIT is lost, an outcome row decides.
    /// Attempts and pauses are those of [`Backoff`].
    ///
    /// ```ignore
    /// pool.run(&scope, |tx| attempt(async move { store::rename(tx, id, name).await })).await?
    /// ```
    ///
    /// # Errors
    /// That of `work`, of the last attempt; or [`Error::Unknown`] if the reply to COMMIT was lost and what
    /// became of it could not be learnt in time.
    pub async fn run<'env, T, F>(&self, scope: &Scope, work: F) -> Result<T, Error>
    where
        F: for<'a> Fn(&'a Tx) -> Attempt<'env, 'a, T> + Sync,
    {
        let mut backoff = Backoff::new();
        loop {
            let (error, token) = match self.run_once(scope, &work).await {
                Ok(value) => return Ok(value),
                Err(failed) => failed,
            };
            match error.class() {
                Class::Retry | Class::Reconnect | Class::Reprepare => {}
                Class::MissingPartition if is_outcome_table(&error) => {
                    self.make_partition_of(token).await?;
                }
                // Somebody else's partition, or nothing that another attempt would mend.
                _ => return Err(error),
            }
            let Some(pause) = backoff.next_pause() else {
                return Err(error);
            };
            tracing::debug!(error = &error as &dyn std::error::Error, ?pause, "running it again");
            sleep(pause).await;
        }
    }

    /// Runs a transaction once, for changes of the schema that can as well be made later: `work` says whether
    /// there is something to commit. `None` where a lock was not free in time: others were in the way, and now
    /// they pass.
    ///
    /// Of a lost reply to COMMIT nothing is learnt: what was not done is done by the next pass.
    ///
    /// # Errors
    /// Any other error of `work`, or of COMMIT.
    pub async fn try_once<'env, F>(&self, scope: &Scope, work: F) -> Result<Option<bool>, Error>
    where
        F: for<'a> FnOnce(&'a Tx) -> Attempt<'env, 'a, bool>,
    {
        let tx = self.begin(scope).await?;
        let done = work(&tx).0.await;
        match done {
            Ok(true) => tx.commit().await.map(|()| Some(true)).map_err(|error| error.source),
            Ok(false) => {
                tx.rollback().await;
                Ok(Some(false))
            }
            Err(error) => {
                tx.rollback().await;
                if error.class() == Class::Retry {
                    tracing::debug!(error = &error as &dyn std::error::Error, "left for later");
                    return Ok(None);
                }
                Err(error)
            }
        }
    }

    async fn run_once<'env, T, F>(&self, scope: &Scope, work: &F) -> Result<T, (Error, Token)>
    where
        F: for<'a> Fn(&'a Tx) -> Attempt<'env, 'a, T> + Sync,
    {
        let token = Token::new();
        let failed = |error| (error, token);
        let tx = self.begin(scope).await.map_err(failed)?;
        let done = async {
            let value = work(&tx).0.await?;
            tx.check()?;
            // The report role writes nothing: whether it committed makes no difference.
            if self.role() != Role::Report {
                tx.execute(statements::OUTCOME_INSERT, &[&token.0]).await?;
            }
            Ok(value)
        };
        let value = match done.await {
            Ok(value) => value,
            Err(error) => {
                tx.rollback().await;
                return Err(failed(error));
            }
        };
        match tx.commit().await {
            Ok(()) => Ok(value),
            Err(CommitError {
                verdict: Verdict::Unknown,
                source,
            }) => {
                if self.role() == Role::Report {
                    return Ok(value);
                }
                match self.resolve(token).await {
                    Ok(Verdict::Committed) => Ok(value),
                    Ok(Verdict::RolledBack) => Err(failed(Error::Lost)),
                    unresolved => {
                        tracing::warn!(%token, ?unresolved, "nobody knows what became of a COMMIT");
                        let source = Box::new(source);
                        Err(failed(Error::Unknown { token, source }))
                    }
                }
            }
            Err(CommitError { source, .. }) => Err(failed(source)),
        }
    }

    /// What became of the transaction that wrote `token`; `Unknown` if that cannot be found out in
    /// time (`Settings::resolve_timeout`). May be asked again and again: the first answer stands.
    ///
    /// # Errors
    /// [`Error::TokenOutOfRange`] for a token whose day is not kept any more, or has not come; else
    /// what asking again does not mend.
    pub async fn resolve(&self, token: Token) -> Result<Verdict, Error> {
        let deadline = Instant::now() + self.settings().resolve_timeout;
        let mut backoff = Backoff::new();
        loop {
            let error = match self.ask(token).await {
                Ok(verdict) => return Ok(verdict),
                Err(error) => error,
            };
            match error.class() {
                Class::Retry | Class::Reconnect | Class::Reprepare => {}
                Class::MissingPartition => self.make_partition_of(token).await?,
                // Our own COMMIT got lost as well: whatever became of it, ask again.
                _ if matches!(error, Error::CommitLost { .. }) => {}
                _ => return Err(error),
            }
            let pause = backoff.endless_pause();
            if Instant::now() + pause >= deadline {
                return Ok(Verdict::Unknown);
            }
            tracing::debug!(error = &error as &dyn std::error::Error, %token, "asking again");
            sleep(pause).await;
        }
    }

    async fn ask(&self, token: Token) -> Result<Verdict, Error> {
        let tx = self.begin(&Scope::Installation).await?;
        tx.set_lock_timeout(TWIN_PATIENCE).await?;
        if tx.execute(statements::OUTCOME_VOID, &[&token.0]).await? == 1 {
            tx.commit().await?;
            return Ok(Verdict::RolledBack);
        }
        // The row is there, and was committed: this statement sees it, for READ COMMITTED takes a
        // new snapshot.
        let row = tx.query_one(statements::OUTCOME_FIND, &[&token.0]).await?;
        tx.rollback().await;
        match row.try_get(0)? {
            "committed" => Ok(Verdict::Committed),
            _ => Ok(Verdict::RolledBack),
        }
    }

    /// Makes the partition of a token's day, as the owner. When somebody else is in the way, or the
    /// reply is lost, the caller's next attempt finds it made, or comes back here.
    async fn make_partition_of(&self, token: Token) -> Result<(), Error> {
        match self.owner().try_make_partition_of(token).await {
            Err(error)
                if matches!(error.class(), Class::Retry | Class::Reconnect)
                    || matches!(error, Error::CommitLost { .. }) =>
            {
                tracing::debug!(error = &error as &dyn std::error::Error, "partition not made");
                Ok(())
            }
            result => result,
        }
    }

    /// Only for a day whose partition maintenance cannot have dropped: with an old one made anew,
    /// and empty, a token that was committed long ago would be found missing.
    async fn try_make_partition_of(&self, token: Token) -> Result<(), Error> {
        let tx = self.begin(&Scope::Installation).await?;
        let today: i64 = tx.query_one(statements::CLOCK_TODAY, &[]).await?.try_get(0)?;
        let allowed = today + 1 - DAYS_KEPT..=today + DAYS_AHEAD;
        if !allowed.contains(&token.day()) {
            tx.rollback().await;
            return Err(Error::TokenOutOfRange { token });
        }
        tx.set_lock_timeout(TWIN_PATIENCE).await?;
        tx.lock_exclusive(AdvisoryLock::OutcomePartitions).await?;
        make_missing(&tx, token.day()..=token.day()).await?;
        Ok(tx.commit().await?)
    }
}

fn is_outcome_table(error: &Error) -> bool {
    error.schema() == Some("counterfoil") && error.table() == Some("outcome")
}

/// What one pass of maintenance did, by the names of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Maintained {
    pub made: Vec<String>,
    pub dropped: Vec<String>,
}

impl Database {
    /// As [`Pool::resolve`], by the role that may ask after anybody's.
    ///
    /// # Errors
    /// As [`Pool::resolve`].
    pub async fn resolve(&self, token: Token) -> Result<Verdict, Error> {
        self.pool(Role::Ops).resolve(token).await
    }

    /// Makes the partitions of the outcome table ahead and drops those that are past. Idempotent;
    /// does nothing while another process is at it.
    ///
    /// # Errors
    /// Of class `Retry` if somebody holds the table: the next pass mends it.
    pub async fn maintain_outcomes(&self) -> Result<Maintained, Error> {
        // Two transactions: what is made stands, whatever keeps the old from being dropped.
        let mut done = Maintained::default();
        if let Some((tx, today)) = self.begin_maintenance().await? {
            done.made = make_missing(&tx, today..=today + DAYS_AHEAD).await?;
            tx.commit().await?;
        }
        if let Some((tx, today)) = self.begin_maintenance().await? {
            done.dropped = drop_past(&tx, today).await?;
            tx.commit().await?;
        }
        Ok(done)
    }

    /// A transaction of the owner's and today's number, unless another process is at it.
    async fn begin_maintenance(&self) -> Result<Option<(Tx, i64)>, Error> {
        let tx = self.pool(Role::Owner).begin(&Scope::Installation).await?;
        tx.set_lock_timeout(PARTITION_PATIENCE).await?;
        if !tx.try_lock_exclusive(AdvisoryLock::OutcomePartitions).await? {
            tx.rollback().await;
            return Ok(None);
        }
        let today = tx.query_one(statements::CLOCK_TODAY, &[]).await?.try_get(0)?;
        Ok(Some((tx, today)))
    }
}

async fn drop_past(tx: &Tx, today: i64) -> Result<Vec<String>, Error> {
    let mut dropped = Vec::new();
    for (day, name) in partitions(tx).await? {
        if day < today - DAYS_KEPT {
            tx.batch(&format!("DROP TABLE counterfoil.{name}")).await?;
            dropped.push(name);
        }
    }
    Ok(dropped)
}

/// CREATE, then ATTACH: unlike `CREATE … PARTITION OF` it does not lock out those who use the table.
async fn make_missing(tx: &Tx, days: std::ops::RangeInclusive<i64>) -> Result<Vec<String>, Error> {
    let there = partitions(tx).await?;
    let mut made = Vec::new();
    for day in days.filter(|day| there.iter().all(|(known, _)| known != day)) {
        let (name, from, to) = (partition_name(day), first_token(day), first_token(day + 1));
        tx.batch(&format!(
            "CREATE TABLE counterfoil.{name} (LIKE counterfoil.outcome INCLUDING ALL);
             ALTER TABLE counterfoil.outcome ATTACH PARTITION counterfoil.{name}
                   FOR VALUES FROM ('{from}') TO ('{to}')"
        ))
        .await?;
        made.push(name);
    }
    Ok(made)
}

/// Day and name of every partition that is ours.
async fn partitions(tx: &Tx) -> Result<Vec<(i64, String)>, Error> {
    let rows = tx.query(statements::OUTCOME_PARTITIONS, &[]).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let name: String = row.try_get(0)?;
        if let Some(day) = day_of_partition(&name) {
            found.push((day, name));
        }
    }
    Ok(found)
}

/// `outcome_20260314`.
fn partition_name(day: i64) -> String {
    let date = jiff::civil::date(1970, 1, 1) + jiff::Span::new().days(day);
    format!("outcome_{:04}{:02}{:02}", date.year(), date.month(), date.day())
}

fn day_of_partition(name: &str) -> Option<i64> {
    let date = jiff::civil::Date::strptime("%Y%m%d", name.strip_prefix("outcome_")?).ok()?;
    let epoch = jiff::civil::date(1970, 1, 1);
    Some(i64::from(date.since(epoch).ok()?.get_days()))
}

/// The smallest UUID with this day's first millisecond: no token of an earlier day is greater.
fn first_token(day: i64) -> Uuid {
    Uuid::from_u128(((day * MS_PER_DAY) as u128) << 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_falls_into_its_day() {
        let day = 20_526; // 2026-03-14
        let first = Token::at((day * MS_PER_DAY) as u64);
        let last = Token::at(((day + 1) * MS_PER_DAY - 1) as u64);
        for token in [first, last] {
            assert_eq!(token.day(), day);
            assert!(first_token(day) <= token.0 && token.0 < first_token(day + 1), "{token}");
            assert_eq!(token.0.get_version_num(), 7);
        }
    }

    #[test]
    fn a_partition_is_named_after_its_day() {
        assert_eq!(partition_name(20_526), "outcome_20260314");
        for day in [0, 19_782, 20_526, 20_819, 20_820] {
            assert_eq!(day_of_partition(&partition_name(day)), Some(day));
        }
        assert_eq!(day_of_partition("outcome_archive"), None);
        assert_eq!(day_of_partition("outcome_20260314_old"), None);
        assert_eq!(day_of_partition("stub_20260314"), None);
    }

    #[test]
    fn a_token_survives_its_text() {
        let token = Token::new();
        assert_eq!(token.to_string().parse::<Token>().unwrap(), token);
    }
}
