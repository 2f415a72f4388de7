//! Why a benchmark gives no figure.

use std::io;
use std::path::{Path, PathBuf};

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that ends a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("there is no bench {0}: the names are {names}", names = crate::NAMES.join(", "))]
    UnknownName(String),

    #[error("PostgreSQL could not be set up")]
    Cluster(#[from] counterfoil_pg_embedded::Error),

    #[error("PostgreSQL refused what the benchmark asked of it")]
    Postgres(#[from] tokio_postgres::Error),

    #[error("cannot {what} {path}")]
    File {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },

    #[error("the server {what}: {said}")]
    Server { what: &'static str, said: String },

    #[error("{path} holds no operator key: the server should have written it")]
    NoKey { path: PathBuf },

    #[error("the connection to {whom} was lost")]
    Connection { whom: &'static str, source: io::Error },

    #[error("{whom} answered something that is not HTTP as this client reads it: {what}")]
    NotHttp { whom: &'static str, what: String },

    #[error("accounts could not be opened: {0}")]
    NotOpened(String),

    #[error("{count} of {of} were not accepted, the first with: {first}")]
    NotAccepted { count: u64, of: u64, first: String },

    #[error("ended by a signal")]
    Interrupted,

    #[error("nothing was done in the measured time")]
    Nothing,

    #[error("{side}: {what} is {found} in the database, and should be {expected} by what clients saw")]
    Lies {
        side: &'static str,
        what: &'static str,
        found: String,
        expected: String,
    },

    #[error("the load's thread ended without an answer")]
    Thread,
}

impl Error {
    pub(crate) fn file(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::File {
            what,
            path: path.to_owned(),
            source,
        }
    }
}
