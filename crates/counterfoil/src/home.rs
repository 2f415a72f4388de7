//! The data folder: where everything lies that must survive.
//!
//! ```text
//! counterfoil.toml   settings, written by people
//! roles.toml         mode 0600: where the database is, and the passwords of its five roles
//! operator.key       mode 0600: an API key that may address every tenant
//! server.toml        where the running server and its PostgreSQL listen; gone when it is down
//! server.lock        held by the running server
//! pg/                the PostgreSQL that is brought along
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use counterfoil_pg::Role;
use counterfoil_pg_embedded::Lock;
use serde::{Deserialize, Serialize};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot {doing} {}", .path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{} is not as this program writes it; move it away, or restore it", .path.display())]
    Damaged {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
    #[error(
        "the folder {} belongs to the PostgreSQL that `up` has brought along; choose another with --data for {other}",
        .dir.display()
    )]
    BroughtAlong { dir: PathBuf, other: Address },
    #[error("there is no home folder to keep the data in; say where with --data DIR")]
    NoHome,
}

/// The database and the passwords of its roles.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roles {
    /// Absent for the PostgreSQL that is brought along.
    pub(crate) database: Option<Address>,
    pub(crate) passwords: BTreeMap<Role, String>,
}

/// Where a database is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) dbname: String,
}

/// For messages: `database shop at db.example:5432`.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, dbname } = self;
        let server = counterfoil_pg::Settings::new(host, *port, dbname).address();
        write!(f, "database {dbname} at {server}")
    }
}

/// A server that is running.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) http: String,
    pub(crate) database: Address,
}

#[derive(Debug, Clone)]
pub(crate) struct Home {
    dir: PathBuf,
}

impl Home {
    pub(crate) fn new(dir: Option<PathBuf>) -> Result<Self, Error> {
        let dir = match dir {
            Some(dir) => std::path::absolute(&dir).map_err(|source| Error::Io {
                doing: "find",
                path: dir,
                source,
            })?,
            None => Self::usual()?,
        };
        Ok(Self { dir })
    }

    /// PostgreSQL never runs as root and cannot enter root's home: root's data lies in /var/lib.
    fn usual() -> Result<PathBuf, Error> {
        if rustix::process::geteuid().is_root() {
            return Ok(PathBuf::from("/var/lib/counterfoil"));
        }
        let data = std::env::var_os("XDG_DATA_HOME")
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from);
        let data = data.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/share")));
        Ok(data.ok_or(Error::NoHome)?.join("counterfoil"))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn cluster(&self) -> PathBuf {
        self.dir.join("pg")
    }

    /// The roles of this folder are those of the PostgreSQL in it, and of no other.
    pub(crate) fn refuse_beside_a_cluster(&self, other: &Address) -> Result<(), Error> {
        if !self.cluster().join("pgdata").exists() {
            return Ok(());
        }
        Err(Error::BroughtAlong {
            dir: self.dir.clone(),
            other: other.clone(),
        })
    }

    pub(crate) fn operator_key(&self) -> PathBuf {
        self.dir.join("operator.key")
    }

    pub(crate) fn create(&self) -> Result<(), Error> {
        let failed = |source| Error::Io {
            doing: "create the data folder",
            path: self.dir.clone(),
            source,
        };
        fs::create_dir_all(&self.dir).map_err(failed)
    }

    /// For one server at a time: it alone writes `server.toml`, and removes it.
    pub(crate) fn lock(&self) -> Result<Lock, counterfoil_pg_embedded::Error> {
        Lock::of_folder(&self.dir, "server.lock")
    }

    pub(crate) fn config(&self) -> Result<Option<String>, Error> {
        read(&self.dir.join("counterfoil.toml"))
    }

    pub(crate) fn roles(&self) -> Result<Option<Roles>, Error> {
        self.parse("roles.toml")
    }

    pub(crate) fn running(&self) -> Result<Option<Running>, Error> {
        let running: Option<Running> = self.parse("server.toml")?;
        // The file of a server that was killed says nothing about the present.
        Ok(running.filter(|running| Path::new("/proc").join(running.pid.to_string()).exists()))
    }

    pub(crate) fn write_roles(&self, roles: &Roles) -> Result<(), Error> {
        let text = toml::to_string(roles).expect("roles are plain tables");
        write_secret(&self.dir.join("roles.toml"), &text)
    }

    pub(crate) fn write_operator_key(&self, token: &str) -> Result<(), Error> {
        write_secret(&self.operator_key(), &format!("{token}\n"))
    }

    pub(crate) fn write_running(&self, running: &Running) -> Result<(), Error> {
        let text = toml::to_string(running).expect("an address is a plain table");
        write_secret(&self.dir.join("server.toml"), &text)
    }

    pub(crate) fn remove_running(&self) {
        // Gone already is just as well.
        let _ = fs::remove_file(self.dir.join("server.toml"));
    }

    fn parse<T: for<'a> Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, Error> {
        let path = self.dir.join(name);
        let Some(text) = read(&path)? else { return Ok(None) };
        toml::from_str(&text).map(Some).map_err(|source| Error::Damaged {
            path,
            source: Box::new(source),
        })
    }
}

pub(crate) fn read(path: &Path) -> Result<Option<String>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(Error::Io {
            doing: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

/// Written beside its place and renamed: never half there, never readable by others.
fn write_secret(path: &Path, text: &str) -> Result<(), Error> {
    let beside = path.with_extension("new");
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, path)
    };
    write().map_err(|source| Error::Io {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}
