//! One connection: its client, the task that drives it, and the statements it has prepared.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool::managed::{self, Metrics, Object, RecycleError, RecycleResult};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Statement};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::ConnectError;
use crate::settings::{Pooler, Role, Settings};
use crate::tls::{Tls, TlsMode};
use crate::{Error, Sql};

/// How long ROLLBACK may take to get through, before and again after the statement in its way has
/// been cancelled. After that the connection is closed instead.
const ROLLBACK_PATIENCE: Duration = Duration::from_secs(2);

pub(crate) type Connections = managed::Pool<Manager>;

/// Opens the connections of one role.
pub(crate) struct Manager {
    settings: Arc<Settings>,
    role: Role,
    config: Config,
    tls: MakeRustlsConnect,
}

impl Manager {
    pub(crate) fn new(settings: Arc<Settings>, role: Role, tls: MakeRustlsConnect) -> Self {
        let config = settings.config(role);
        Self {
            settings,
            role,
            config,
            tls,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }
}

impl managed::Manager for Manager {
    type Type = Conn;
    type Error = Error;

    async fn create(&self) -> Result<Conn, Error> {
        let Settings {
            dbname,
            connect_timeout,
            pooler,
            ..
        } = &*self.settings;
        // `Config::connect_timeout` ends with the TCP handshake. A server that accepts and then
        // says nothing would hold a caller for ever.
        let (client, connection) = timeout(*connect_timeout, self.config.connect(self.tls.clone()))
            .await
            .map_err(|_| {
                let address = self.settings.address();
                ConnectError::timed_out(address, dbname, self.role.name(), *connect_timeout)
            })?
            .map_err(|source| ConnectError::of_role(&self.settings, self.role, source))?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                // Whoever waits for a reply gets an error of its own; this is for the log.
                tracing::debug!(error = &error as &dyn std::error::Error, "connection lost");
            }
        });
        Ok(Conn {
            client,
            task: task.abort_handle(),
            tls: self.tls.clone(),
            commit_timeout: self.settings.commit_timeout,
            begin_timeout: self.settings.begin_timeout(self.role),
            reply_timeout: self.settings.reply_timeout(self.role),
            statements: (*pooler == Pooler::None).then(Mutex::default),
            broken: AtomicBool::new(false),
            silent: AtomicBool::new(false),
        })
    }

    /// Costs no round trip. A connection that dies without our noticing fails at BEGIN, and there
    /// another is taken.
    async fn recycle(&self, conn: &mut Conn, _: &Metrics) -> RecycleResult<Error> {
        if conn.is_usable() {
            Ok(())
        } else {
            Err(RecycleError::message("connection lost"))
        }
    }
}

/// One connection.
pub(crate) struct Conn {
    client: Client,
    task: AbortHandle,
    tls: MakeRustlsConnect,
    commit_timeout: Duration,
    begin_timeout: Duration,
    reply_timeout: Option<Duration>,
    /// What has been prepared so far. `None` behind a pooler in transaction mode, which hands the
    /// next transaction another session: a statement named in one is unknown in the next.
    statements: Option<Mutex<HashMap<usize, Statement>>>,
    /// The next one to want this connection shall have another.
    broken: AtomicBool,
    /// A reply did not come in time, so none will come to ROLLBACK either.
    silent: AtomicBool,
}

/// How a statement is sent.
pub(crate) enum Sending {
    Named(Statement),
    Unnamed,
    /// Unnamed this once, and prepared beside it for the next time.
    First,
}

impl Conn {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn commit_timeout(&self) -> Duration {
        self.commit_timeout
    }

    /// How long BEGIN is waited for, and what goes with it.
    pub(crate) fn begin_timeout(&self) -> Duration {
        self.begin_timeout
    }

    /// How long the reply to any other statement is waited for.
    pub(crate) fn reply_timeout(&self) -> Option<Duration> {
        self.reply_timeout
    }

    pub(crate) fn sending(&self, sql: &'static Sql) -> Sending {
        match &self.statements {
            None => Sending::Unnamed,
            Some(statements) => match statements.lock().get(&key(sql)) {
                Some(statement) => Sending::Named(statement.clone()),
                None => Sending::First,
            },
        }
    }

    /// The first use of a statement on this connection: Parse for the next time and the unnamed
    /// statement leave in one flush. Waiting for the one before sending the other would cost a
    /// round trip, and let a later statement overtake this one.
    pub(crate) async fn first<T>(
        &self,
        sql: &'static Sql,
        unnamed: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, tokio_postgres::Error> {
        let prepare = self.client.prepare_typed(sql.text, sql.params);
        let (prepared, reply) = futures_util::future::join(prepare, unnamed).await;
        if let (Ok(statement), Some(statements)) = (&prepared, &self.statements) {
            statements.lock().insert(key(sql), statement.clone());
        }
        // If Parse failed, the reply is only its echo.
        prepared.and(reply)
    }

    /// After DDL, DISCARD or DEALLOCATE: every statement is prepared again when it is next used.
    pub(crate) fn forget_statements(&self) {
        if let Some(statements) = &self.statements {
            statements.lock().clear();
        }
    }

    pub(crate) fn mark_broken(&self) {
        self.broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn mark_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
        self.mark_broken();
    }

    /// Asks the server to cancel what this connection is doing. It opens a connection of its own
    /// for that, hence the bound.
    async fn cancel(&self) {
        let token = self.client.cancel_token();
        match timeout(ROLLBACK_PATIENCE, token.cancel_query(self.tls.clone())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "a statement cannot be cancelled");
            }
            Err(_) => tracing::warn!("a statement cannot be cancelled in time"),
        }
    }

    /// Closes the socket now.
    pub(crate) fn close(&self) {
        self.task.abort();
    }

    fn is_usable(&self) -> bool {
        !self.broken.load(Ordering::Relaxed) && !self.client.is_closed()
    }
}

/// A statement is known by where it is: there is one `Sql` for each, and it lives for ever.
fn key(sql: &'static Sql) -> usize {
    std::ptr::from_ref(sql).addr()
}

/// Closes the socket now, whatever is in flight. The server rolls back an open transaction when it
/// notices; a pooler in transaction mode closes its own connection, too, since it cannot know what
/// state that was left in.
pub(crate) fn discard(conn: Object<Manager>) {
    Object::take(conn).close();
}

/// Ends the transaction, whatever is in flight, and gives the connection back; or closes it.
///
/// ROLLBACK queues behind the statement that is running: when a query was dropped in mid-flight,
/// tokio-postgres reads its reply to the end and throws it away. A statement that waits for a lock,
/// or runs for long, is cancelled: closing the socket alone would leave it running, since the
/// server only looks at the socket when it has something to say.
pub(crate) async fn end(conn: Object<Manager>) {
    if conn.client.is_closed() {
        return discard(conn);
    }
    if conn.silent.load(Ordering::Relaxed) {
        // Out of its pool at once. The server may yet be alive and at work on the statement.
        let conn = Object::take(conn);
        tokio::spawn(async move {
            conn.cancel().await;
            conn.close();
        });
        return;
    }
    let clean = {
        let mut rollback = std::pin::pin!(conn.client.batch_execute("ROLLBACK"));
        match timeout(ROLLBACK_PATIENCE, rollback.as_mut()).await {
            Ok(reply) => reply.is_ok(),
            Err(_) => {
                conn.cancel().await;
                let _ = timeout(ROLLBACK_PATIENCE, rollback).await;
                // The cancel has been sent, and may arrive late: with the connection given back, it
                // would hit a statement of whoever has it next.
                false
            }
        }
    };
    if clean {
        drop(conn);
    } else {
        discard(conn);
    }
}

/// A connection for `counterfoil init` and tests: as an administrator, outside of every pool.
///
/// The connection is driven by a task of its own until the client is dropped.
///
/// # Errors
/// [`Error::Connect`], with what to do; [`Error::Settings`] for a root certificate that cannot be used.
pub async fn connect_admin(config: &Config, tls: &Tls) -> Result<Client, Error> {
    let mut config = config.clone();
    config.ssl_mode(match tls.mode {
        TlsMode::Disable => SslMode::Disable,
        TlsMode::Require | TlsMode::VerifyFull => SslMode::Require,
    });
    let address = match config.get_hosts().first() {
        Some(Host::Tcp(host)) => host.clone(),
        Some(Host::Unix(path)) => path.display().to_string(),
        None => "(no host)".to_owned(),
    };
    let address = match config.get_ports().first() {
        Some(port) => format!("{address}:{port}"),
        None => address,
    };
    let user = config.get_user().unwrap_or("(no user)").to_owned();
    let dbname = config.get_dbname().unwrap_or(&user).to_owned();
    let connecting = config.connect(tls.connector()?);
    let (client, connection) = timeout(Settings::CONNECT_TIMEOUT, connecting)
        .await
        .map_err(|_| ConnectError::timed_out(address.clone(), &dbname, &user, Settings::CONNECT_TIMEOUT))?
        .map_err(|source| ConnectError::of(address.clone(), &dbname, &user, source))?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection lost");
        }
    });
    Ok(client)
}
