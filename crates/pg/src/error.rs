//! What went wrong.
//!
//! One sentence each, with a way out where there is one. A sentence never repeats its source: who
//! prints the chain gets every fact once.

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use tokio_postgres::error::DbError;

use crate::settings::{Role, Settings};
use crate::{Class, Token};

type Source = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{what}: {fix}")]
    Settings {
        what: &'static str,
        fix: &'static str,
        source: Option<Source>,
    },

    #[error(transparent)]
    Connect(Box<ConnectError>),

    #[error(
        "all {size} connections of {role} were busy for {} s: make its pool larger, or look for \
         transactions that take too long",
        waited.as_secs_f32(), role = role.name()
    )]
    PoolExhausted { role: Role, size: usize, waited: Duration },

    #[error("the pool of {} is closed", role.name())]
    PoolClosed { role: Role },

    #[error(
        "this connection arrived with {setting} = {value:?} set for the whole session, so another \
         scope could leak in; the connection was closed: find who sets it (SET without LOCAL, \
         ALTER ROLE, ALTER DATABASE), and behind a pooler make its connections anew (RECONNECT)"
    )]
    ScopeSet { setting: &'static str, value: String },

    /// The server reported an error for a statement, or the connection was lost under it.
    #[error("statement {statement} failed{}", hint(source))]
    Statement {
        statement: &'static str,
        source: tokio_postgres::Error,
    },

    #[error("statement {statement} takes {declared} parameters, and was given {given}")]
    Parameters {
        statement: &'static str,
        declared: usize,
        given: usize,
    },

    /// The server, or the network before it, has gone silent. The transaction is not committed.
    #[error(
        "statement {statement} got no reply for {} s, longer than the server lets a statement take: the server is \
         frozen or cannot be reached; the connection was given up", patience.as_secs_f32()
    )]
    NoReply {
        statement: &'static str,
        patience: Duration,
    },

    /// Rows that were loaded without a lock are not there any more as they were loaded.
    #[error("statement {statement} found rows that somebody else has changed since they were loaded")]
    Stale { statement: &'static str },

    #[error("statement {statement} gave {got} rows where {expected} was expected")]
    Rows {
        statement: &'static str,
        expected: &'static str,
        got: usize,
    },

    /// From outside of a statement of ours: a column that is not what the code takes it for, or
    /// whatever an administrator's connection met.
    #[error("{}", if source.as_db_error().is_some() {
        "the server reported an error"
    } else {
        "the server's answer could not be read"
    })]
    Postgres {
        #[from]
        source: tokio_postgres::Error,
    },

    /// COMMIT was refused here: a statement of the transaction had failed and was passed over.
    #[error(
        "rolled back instead of committed: statement {statement} had failed with SQLSTATE \
         {}, and its error was passed over",
        sqlstate.as_deref().unwrap_or("(none)")
    )]
    Swallowed {
        statement: &'static str,
        sqlstate: Option<String>,
        class: Class,
    },

    /// COMMIT was refused here: nobody waited for what became of a statement.
    #[error(
        "rolled back instead of committed: statement {statement} was abandoned before its reply \
         came, so nobody knows whether it failed"
    )]
    Abandoned { statement: &'static str },

    /// The connection was lost before COMMIT was sent: nothing was committed.
    #[error("the connection was lost before COMMIT was sent; nothing was committed")]
    Lost,

    /// The server answered COMMIT with an error: nothing was committed.
    #[error("COMMIT failed; nothing was committed")]
    CommitRefused { source: tokio_postgres::Error },

    /// COMMIT was sent and its reply never came.
    #[error("COMMIT was sent and its reply never came")]
    CommitLost { source: Option<tokio_postgres::Error> },

    /// COMMIT was sent, its reply never came, and what became of it could not be found out yet.
    #[error(
        "COMMIT was sent, its reply never came, and the database could not be asked in time: ask \
         again after {token} (Database::resolve) within two days, and until then do not repeat \
         what was asked for"
    )]
    Unknown { token: Token, source: Box<Error> },

    #[error(
        "token {token} is not of these days by the server's clock: rows of outcomes are kept for \
         two days; if the token is new, set the clock of this machine"
    )]
    TokenOutOfRange { token: Token },
}

impl Error {
    /// What to do next.
    #[must_use]
    pub fn class(&self) -> Class {
        match self {
            Self::Statement { source, .. } | Self::CommitRefused { source } | Self::Postgres { source } => {
                class_of(source)
            }
            Self::Connect(error) => error.class(),
            Self::Swallowed { class, .. } => *class,
            Self::Lost | Self::NoReply { .. } | Self::PoolExhausted { .. } => Class::Reconnect,
            Self::Stale { .. } => Class::Retry,
            // A lost reply is nobody's reason to run anything again before it is resolved.
            Self::CommitLost { .. }
            | Self::Unknown { .. }
            | Self::Settings { .. }
            | Self::PoolClosed { .. }
            | Self::ScopeSet { .. }
            | Self::Parameters { .. }
            | Self::Rows { .. }
            | Self::Abandoned { .. }
            | Self::TokenOutOfRange { .. } => Class::Other,
        }
    }

    /// What the server reported, if it did.
    #[must_use]
    pub fn db(&self) -> Option<&DbError> {
        match self {
            Self::Statement { source, .. }
            | Self::CommitRefused { source }
            | Self::CommitLost { source: Some(source) }
            | Self::Postgres { source } => source.as_db_error(),
            Self::Connect(error) => error.source.as_ref()?.as_db_error(),
            _ => None,
        }
    }

    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        match self {
            Self::Swallowed { sqlstate, .. } => sqlstate.as_deref(),
            _ => self.db().map(|db| db.code().code()),
        }
    }

    /// The constraint that was violated. Of a partition: the partition's constraint.
    #[must_use]
    pub fn constraint(&self) -> Option<&str> {
        self.db()?.constraint()
    }

    /// The table the error is about, without its schema.
    #[must_use]
    pub fn table(&self) -> Option<&str> {
        self.db()?.table()
    }

    /// The schema of that table.
    #[must_use]
    pub fn schema(&self) -> Option<&str> {
        self.db()?.schema()
    }
}

/// The class of an error on an open connection.
pub(crate) fn class_of(error: &tokio_postgres::Error) -> Class {
    match error.as_db_error() {
        Some(db) => Class::of(db),
        None if is_lost(error) => Class::Reconnect,
        // A parameter or a column that does not fit its type: the same every time.
        None => Class::Other,
    }
}

/// A way out, where the SQLSTATE alone does not show it.
fn hint(error: &tokio_postgres::Error) -> &'static str {
    match error.code().map(|code| code.code()) {
        Some("26000" | "42P05") => " (is there a pooler in transaction mode between? then set pooler = transaction)",
        _ => "",
    }
}

/// Whether the connection is gone. The kind of a `tokio_postgres::Error` is private: closed is
/// asked for, and a failed read or write is known by its source.
fn is_lost(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    error.is_closed() || error.source().is_some_and(|source| source.is::<std::io::Error>())
}

/// A connection could not be opened.
#[derive(Debug)]
pub struct ConnectError {
    why: Refusal,
    address: String,
    dbname: String,
    user: String,
    source: Option<tokio_postgres::Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Unreachable,
    /// Something else answers.
    Stranger,
    TimedOut(Duration),
    Password,
    Role,
    Database,
    Tls,
    Full,
    NotReady,
    Other,
}

impl ConnectError {
    pub(crate) fn of_role(settings: &Settings, role: Role, source: tokio_postgres::Error) -> Error {
        Self::of(settings.address(), &settings.dbname, role.name(), source)
    }

    pub(crate) fn of(address: String, dbname: &str, user: &str, source: tokio_postgres::Error) -> Error {
        Error::Connect(Box::new(Self {
            why: Refusal::of(&source),
            address,
            dbname: dbname.to_owned(),
            user: user.to_owned(),
            source: Some(source),
        }))
    }

    pub(crate) fn timed_out(address: String, dbname: &str, user: &str, after: Duration) -> Error {
        Error::Connect(Box::new(Self {
            why: Refusal::TimedOut(after),
            address,
            dbname: dbname.to_owned(),
            user: user.to_owned(),
            source: None,
        }))
    }

    fn class(&self) -> Class {
        match self.why {
            Refusal::Unreachable | Refusal::Stranger | Refusal::TimedOut(_) | Refusal::Full | Refusal::NotReady => {
                Class::Reconnect
            }
            Refusal::Password | Refusal::Role | Refusal::Database | Refusal::Tls => Class::Other,
            Refusal::Other => self.source.as_ref().map_or(Class::Other, class_of),
        }
    }
}

impl Refusal {
    fn of(error: &tokio_postgres::Error) -> Self {
        if let Some(db) = error.as_db_error() {
            return match db.code().code() {
                "28P01" => Self::Password,
                "28000" => Self::Role,
                "3D000" => Self::Database,
                "53300" => Self::Full,
                "57P01" | "57P02" | "57P03" => Self::NotReady,
                _ => Self::Other,
            };
        }
        // The kinds are private, their texts are not; a test keeps an eye on each of them.
        match error.to_string().as_str() {
            "error performing TLS handshake" => Self::Tls,
            "error connecting to server" | "connection closed" => Self::Unreachable,
            "error communicating with the server" if is_gibberish(error) => Self::Stranger,
            "error communicating with the server" => Self::Unreachable,
            "unexpected message from server" | "error parsing response from server" => Self::Stranger,
            // The server asks for a password, and there is none; or SCRAM went wrong.
            "invalid configuration" | "authentication error" => Self::Password,
            _ => Self::Other,
        }
    }
}

/// What came is no message of PostgreSQL's protocol, or the beginning of one that would be a gigabyte long.
fn is_gibberish(error: &tokio_postgres::Error) -> bool {
    use std::error::Error as _;
    let io = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| {
        matches!(io.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidData)
            || io.to_string() == "bytes remaining on stream"
    })
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address, dbname, user, ..
        } = self;
        match self.why {
            Refusal::Unreachable => write!(
                f,
                "cannot reach PostgreSQL at {address}: start it, or correct the host and the port"
            ),
            Refusal::Stranger => write!(
                f,
                "what answers at {address} is not PostgreSQL: correct the host and the port"
            ),
            Refusal::TimedOut(after) => write!(
                f,
                "PostgreSQL at {address} did not answer within {} s: check the host, the port and \
                 the network between",
                after.as_secs_f32()
            ),
            Refusal::Password => write!(
                f,
                "PostgreSQL at {address} does not take the password of {user}: correct it in the \
                 settings, set another with ALTER ROLE, or run `counterfoil init`, with \
                 --reset-passwords if the role is there already"
            ),
            Refusal::Role => write!(
                f,
                "PostgreSQL at {address} does not let {user} in: run `counterfoil init` if there is \
                 no such role yet, set tls if it takes encrypted connections only, or add a line for \
                 {user} to pg_hba.conf"
            ),
            Refusal::Database => write!(
                f,
                "there is no database {dbname} at {address}: create it, or correct its name"
            ),
            Refusal::Tls => write!(
                f,
                "no encrypted connection to PostgreSQL at {address}: turn TLS on in the server and \
                 check that tls_root_cert vouches for its certificate, or set tls to disable where \
                 the network is trusted"
            ),
            Refusal::Full => write!(
                f,
                "PostgreSQL at {address} has no connection left for {user}: raise max_connections, \
                 make the pools smaller, or put a pooler between"
            ),
            Refusal::NotReady => write!(
                f,
                "PostgreSQL at {address} is starting up or shutting down: wait, then try again"
            ),
            Refusal::Other => {
                write!(
                    f,
                    "cannot open a connection to database {dbname} at {address} as {user}"
                )
            }
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
