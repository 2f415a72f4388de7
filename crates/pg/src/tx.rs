//! One transaction.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use deadpool::managed::Object;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_postgres::Row;
use tokio_postgres::error::Severity;
use tokio_postgres::types::{ToSql, Type};

use crate::conn::{self, Conn, Manager, Sending};
use crate::error::class_of;
use crate::{AdvisoryLock, Class, Error, Scope, Sql, Verdict, statements};

/// How much longer than a statement may take its reply is waited for.
const REPLY_GRACE: Duration = Duration::from_secs(5);

type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A transaction with a scope, READ COMMITTED.
///
/// Statements take `&self`, so that independent ones can be pipelined
/// (`futures_util::future::try_join`). Each is sent when its future is first polled, the first time
/// on a connection as well, and so they arrive in that order.
///
/// Without `commit` everything is rolled back: by `rollback`, or by a task of its own when the
/// transaction is dropped. In between the connection is nobody's.
pub struct Tx {
    /// `None` once the transaction has ended.
    conn: Option<Object<Manager>>,
    /// The first reason why this transaction must not commit.
    failure: Mutex<Option<Failure>>,
    /// COMMIT has been sent: from now on nothing may be cancelled.
    committing: bool,
    pulse: Mutex<Pulse>,
}

/// Whether the server is still there.
#[derive(Debug, Clone, Copy)]
struct Pulse {
    /// When the last reply came. Statements that are pipelined wait for those before them, so a
    /// reply is waited for from here and not from when its statement was sent.
    heard: Instant,
    /// How long a reply may take; `None`: for ever.
    patience: Option<Duration>,
}

/// Why a transaction must not commit.
///
/// The server would refuse by itself: it answers COMMIT of a failed transaction with a ROLLBACK.
/// But it calls that a success, and tokio-postgres does not show the difference.
#[derive(Debug, Clone)]
enum Failure {
    Failed {
        statement: &'static str,
        sqlstate: Option<String>,
        class: Class,
    },
    Abandoned {
        statement: &'static str,
    },
}

impl Failure {
    /// "current transaction is aborted": the echo of an earlier failure, never the cause.
    fn is_echo(&self) -> bool {
        matches!(self, Self::Failed { sqlstate: Some(code), .. } if code == "25P02")
    }

    fn into_error(self) -> Error {
        match self {
            Self::Failed {
                statement,
                sqlstate,
                class,
            } => Error::Swallowed {
                statement,
                sqlstate,
                class,
            },
            Self::Abandoned { statement } => Error::Abandoned { statement },
        }
    }
}

/// COMMIT did not succeed, or nobody knows.
#[derive(Debug, thiserror::Error)]
#[error("{}", match verdict {
    Verdict::Unknown => "nobody knows yet whether the transaction was committed",
    Verdict::RolledBack | Verdict::Committed => "the transaction was rolled back",
})]
pub struct CommitError {
    /// `RolledBack` or `Unknown`.
    pub verdict: Verdict,
    pub source: Error,
}

impl CommitError {
    fn rolled_back(source: Error) -> Self {
        Self {
            verdict: Verdict::RolledBack,
            source,
        }
    }

    fn unknown(source: Option<tokio_postgres::Error>) -> Self {
        Self {
            verdict: Verdict::Unknown,
            source: Error::CommitLost { source },
        }
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        error.source
    }
}

impl Tx {
    /// One round trip. The three requests leave in one flush: BEGIN, the look at what the session
    /// has set, and the scope, which is harmless if the look finds something.
    pub(crate) async fn begin(conn: Object<Manager>, scope: &Scope) -> Result<Self, Error> {
        // From here on dropping this future rolls back.
        let mut tx = Self {
            pulse: Mutex::new(Pulse {
                heard: Instant::now(),
                patience: Some(conn.begin_timeout()),
            }),
            conn: Some(conn),
            failure: Mutex::default(),
            committing: false,
        };
        let (begun, session, scoped) = futures_util::join!(
            tx.simple("begin", "BEGIN ISOLATION LEVEL READ COMMITTED"),
            tx.query_one(statements::SCOPE_READ, &[]),
            tx.set_scope(scope),
        );
        let session = match begun.and(session).and_then(|row| scoped.map(|()| row)) {
            Ok(row) => row,
            Err(error) => {
                // Never to be seen again, so that `Pool::begin` comes to an end.
                tx.conn().mark_broken();
                return Err(error);
            }
        };
        tx.pulse.lock().patience = tx.conn().reply_timeout();
        for (i, setting) in ["counterfoil.tenant", "counterfoil.tenants"].into_iter().enumerate() {
            // '' is what SET LOCAL leaves behind in a session where it has ever been used.
            if let Some(value) = session.try_get::<_, Option<String>>(i)?.filter(|v| !v.is_empty()) {
                // Closed, not rolled back: a pooler then throws its server connection away, since
                // a transaction was open on it, and with it the value.
                tx.discard();
                return Err(Error::ScopeSet { setting, value });
            }
        }
        Ok(tx)
    }

    async fn set_scope(&self, scope: &Scope) -> Result<(), Error> {
        match scope.set_local() {
            Some(text) => self.simple("set_scope", &text).await,
            None => Ok(()),
        }
    }

    /// # Errors
    /// What the server reports, or [`Error::NoReply`] if it is silent for too long. After either the
    /// transaction can only be rolled back.
    pub async fn query(&self, sql: &'static Sql, params: Params<'_>) -> Result<Vec<Row>, Error> {
        let flight = self.depart(sql, params)?;
        let (conn, client) = (self.conn(), self.conn().client());
        let reply = async {
            match conn.sending(sql) {
                Sending::Named(statement) => client.query(&statement, params).await,
                Sending::Unnamed => client.query_typed(sql.text, &typed(sql, params)).await,
                Sending::First => conn.first(sql, client.query_typed(sql.text, &typed(sql, params))).await,
            }
        };
        flight.land(reply).await
    }

    /// The row, if there is one; more than one is an error.
    ///
    /// # Errors
    /// As `query`, and [`Error::Rows`].
    pub async fn query_opt(&self, sql: &'static Sql, params: Params<'_>) -> Result<Option<Row>, Error> {
        let mut rows = self.query(sql, params).await?;
        match rows.len() {
            0 | 1 => Ok(rows.pop()),
            got => Err(Error::Rows {
                statement: sql.name,
                expected: "at most one",
                got,
            }),
        }
    }

    /// The row; none or more than one is an error.
    ///
    /// # Errors
    /// As `query`, and [`Error::Rows`].
    pub async fn query_one(&self, sql: &'static Sql, params: Params<'_>) -> Result<Row, Error> {
        let mut rows = self.query(sql, params).await?;
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            (row, more) => Err(Error::Rows {
                statement: sql.name,
                expected: "one",
                got: more + usize::from(row.is_some()),
            }),
        }
    }

    /// How many rows it changed.
    ///
    /// # Errors
    /// As `query`.
    pub async fn execute(&self, sql: &'static Sql, params: Params<'_>) -> Result<u64, Error> {
        let flight = self.depart(sql, params)?;
        let (conn, client) = (self.conn(), self.conn().client());
        let reply = async {
            match conn.sending(sql) {
                Sending::Named(statement) => client.execute(&statement, params).await,
                Sending::Unnamed => client.execute_typed(sql.text, &typed(sql, params)).await,
                Sending::First => {
                    conn.first(sql, client.execute_typed(sql.text, &typed(sql, params)))
                        .await
                }
            }
        };
        flight.land(reply).await
    }

    /// A script of several statements without parameters. For migrations and maintenance only:
    /// nothing but constants, integers and dates may be formatted into it.
    ///
    /// # Errors
    /// As `query`: of the first statement that fails; those after it are not run.
    pub async fn batch(&self, script: &str) -> Result<(), Error> {
        self.simple("batch", script).await
    }

    /// For this transaction, how long a statement waits for one lock. Zero: for ever.
    pub async fn set_lock_timeout(&self, bound: Duration) -> Result<(), Error> {
        // Rounded up, because 0 means no timeout at all.
        let ms = bound.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
        self.simple("set_lock_timeout", &format!("SET LOCAL lock_timeout = {ms}"))
            .await
    }

    /// For this transaction, how long one statement may take, whatever its role says. Zero: for ever.
    pub async fn set_statement_timeout(&self, bound: Duration) -> Result<(), Error> {
        let ms = bound.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128);
        self.pulse.lock().patience = (!bound.is_zero()).then(|| bound + REPLY_GRACE);
        self.simple("set_statement_timeout", &format!("SET LOCAL statement_timeout = {ms}"))
            .await
    }

    /// Waits for the lock, shared, until the end of the transaction.
    ///
    /// # Errors
    /// As `query`; of class `Retry` if it is not free within the `lock_timeout`.
    pub async fn lock_shared(&self, lock: AdvisoryLock) -> Result<(), Error> {
        self.query_one(
            statements::ADVISORY_LOCK_SHARED,
            &[&AdvisoryLock::CLASS, &lock.object()],
        )
        .await?;
        Ok(())
    }

    /// Waits for the lock, exclusive, until the end of the transaction. Everybody who wants it
    /// shared queues behind: only for locks that nobody holds in the way of work.
    ///
    /// # Errors
    /// As `query`; of class `Retry` if it is not free within the `lock_timeout`.
    pub async fn lock_exclusive(&self, lock: AdvisoryLock) -> Result<(), Error> {
        let key: Params<'_> = &[&AdvisoryLock::CLASS, &lock.object()];
        self.query_one(statements::ADVISORY_LOCK_EXCLUSIVE, key).await?;
        Ok(())
    }

    /// Takes the lock, exclusive, if nobody holds it. Never waits, and nobody queues behind.
    pub async fn try_lock_exclusive(&self, lock: AdvisoryLock) -> Result<bool, Error> {
        let key: Params<'_> = &[&AdvisoryLock::CLASS, &lock.object()];
        let row = self.query_one(statements::ADVISORY_TRY_EXCLUSIVE, key).await?;
        Ok(row.try_get(0)?)
    }

    /// The reason why this transaction can no longer commit, if there is one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.failure
            .lock()
            .clone()
            .map_or(Ok(()), |failure| Err(failure.into_error()))
    }

    /// Commits, or says what became of it.
    ///
    /// Dropping this future leaves the verdict open: the connection is closed, nothing is
    /// cancelled.
    ///
    /// # Errors
    /// With the verdict `RolledBack` nothing was committed: a statement had failed, or COMMIT did. With
    /// `Unknown` its reply did not come: ask the outcome row, or the stubs, before anything is repeated.
    pub async fn commit(mut self) -> Result<(), CommitError> {
        if let Err(error) = self.check() {
            self.rollback().await;
            return Err(CommitError::rolled_back(error));
        }
        if self.conn().client().is_closed() {
            self.discard();
            return Err(CommitError::rolled_back(Error::Lost));
        }
        self.committing = true;
        let bound = self.conn().commit_timeout();
        let reply = timeout(bound, self.conn().client().batch_execute("COMMIT")).await;
        match reply {
            Ok(Ok(())) => {
                // The connection is clean and goes back to its pool.
                self.conn = None;
                Ok(())
            }
            Ok(Err(source)) if is_certain(&source) => {
                self.committing = false;
                self.rollback().await;
                Err(CommitError::rolled_back(Error::CommitRefused { source }))
            }
            Ok(Err(source)) => {
                self.discard();
                Err(CommitError::unknown(Some(source)))
            }
            Err(_) => {
                self.give_up();
                self.discard();
                Err(CommitError::unknown(None))
            }
        }
    }

    /// Rolls back, and waits until the connection is back in its pool, or closed.
    pub async fn rollback(mut self) {
        if let Some(conn) = self.conn.take() {
            // In a task of its own, so that it is finished even when this future is dropped.
            let _ = tokio::spawn(conn::end(conn)).await;
        }
    }

    fn discard(&mut self) {
        if let Some(conn) = self.conn.take() {
            conn::discard(conn);
        }
    }

    fn conn(&self) -> &Conn {
        self.conn
            .as_deref()
            .expect("a transaction has its connection until it ends")
    }

    /// The server has gone silent. What took this connection from us, such as a firewall that forgot
    /// it, took those that lie idle beside it as well: each of them would cost somebody the same wait.
    fn give_up(&self) {
        let Some(conn) = &self.conn else { return };
        conn.mark_silent();
        if let Some(pool) = Object::pool(conn) {
            for idle in pool.retain(|_, _| false).removed {
                idle.close();
            }
        }
    }

    /// To be called before a statement is sent; what comes back lands in the `Flight`.
    fn depart(&self, sql: &'static Sql, params: Params<'_>) -> Result<Flight<'_>, Error> {
        let (declared, given) = (sql.params.len(), params.len());
        if declared != given {
            return Err(Error::Parameters {
                statement: sql.name,
                declared,
                given,
            });
        }
        Ok(Flight {
            tx: self,
            statement: sql.name,
            landed: false,
        })
    }

    /// A text without parameters, by the simple protocol.
    async fn simple(&self, name: &'static str, text: &str) -> Result<(), Error> {
        let flight = Flight {
            tx: self,
            statement: name,
            landed: false,
        };
        flight.land(self.conn().client().batch_execute(text)).await
    }

    fn note(&self, failure: Failure) {
        let mut first = self.failure.lock();
        // Of pipelined statements the second may be heard of before the first.
        if first.as_ref().is_none_or(|known| known.is_echo() && !failure.is_echo()) {
            *first = Some(failure);
        }
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let Some(conn) = self.conn.take() else { return };
        match Handle::try_current() {
            // Cancelling a COMMIT that waits for a standby would make it return early and claim
            // to be done: whoever dropped it gets no verdict, and nothing is touched.
            _ if self.committing => conn::discard(conn),
            Ok(runtime) => drop(runtime.spawn(conn::end(conn))),
            Err(_) => conn::discard(conn),
        }
    }
}

/// A statement on its way. Dropped before it has landed, its caller has gone and will never hear
/// of a failure; the transaction must not commit then, since it may be one that the server has
/// long given up.
struct Flight<'a> {
    tx: &'a Tx,
    statement: &'static str,
    landed: bool,
}

impl Flight<'_> {
    async fn land<T>(mut self, reply: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Error> {
        let (tx, statement) = (self.tx, self.statement);
        let mut reply = pin!(reply);
        let mut since = Instant::now();
        let result = loop {
            let Pulse { heard, patience } = *tx.pulse.lock();
            since = since.max(heard);
            let Some(patience) = patience else {
                break reply.await;
            };
            match timeout_at(since + patience, reply.as_mut()).await {
                Ok(result) => break result,
                Err(_) if tx.pulse.lock().heard > since => {}
                Err(_) => {
                    self.landed = true;
                    tx.give_up();
                    tx.note(Failure::Failed {
                        statement,
                        sqlstate: None,
                        class: Class::Reconnect,
                    });
                    return Err(Error::NoReply { statement, patience });
                }
            }
        };
        tx.pulse.lock().heard = Instant::now();
        self.landed = true;
        result.map_err(|source| {
            let sqlstate = source.code().map(|code| code.code().to_owned());
            let class = class_of(&source);
            match class {
                Class::Reprepare => self.tx.conn().forget_statements(),
                Class::Reconnect => self.tx.conn().mark_broken(),
                _ => {}
            }
            self.tx.note(Failure::Failed {
                statement,
                sqlstate,
                class,
            });
            Error::Statement { statement, source }
        })
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if !self.landed {
            self.tx.note(Failure::Abandoned {
                statement: self.statement,
            });
        }
    }
}

fn typed<'a>(sql: &'static Sql, params: Params<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    params.iter().copied().zip(sql.params.iter().cloned()).collect()
}

/// Whether an error in place of COMMIT's reply means that nothing was committed.
///
/// An ERROR is raised before the commit record is written; after that the server has no way to
/// raise one (it would be a PANIC). A FATAL may come after: a backend that is told to stop while it
/// waits for a standby has committed, and dies with 57P01 all the same. What has no severity comes
/// from a pooler or from our own side, and knows nothing.
fn is_certain(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().and_then(|db| db.parsed_severity()) == Some(Severity::Error)
}
