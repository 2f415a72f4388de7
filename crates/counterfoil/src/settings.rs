//! Settings: flags over environment (both by the argument parser) over counterfoil.toml.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil_pg::{Config, Pooler, Tls, TlsMode};
use serde::Deserialize;

use crate::args::{PoolerArg, SettingsArgs, TlsArg, UpArgs};
use crate::home::{self, Home, Place};

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{} has a setting this program does not know, or a value it cannot use", .path.display())]
    Toml {
        path: PathBuf,
        source: Box<toml::de::Error>,
    },
    #[error("there is no settings file {}", .path.display())]
    NoFile { path: PathBuf },
    #[error("the database URL cannot be read; it is postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE")]
    Url(#[source] Option<Box<dyn std::error::Error + Send + Sync>>),
    #[error(transparent)]
    Home(#[from] home::Error),
}

/// counterfoil.toml. Unknown keys are errors.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    database_url: Option<String>,
    pooler: Option<PoolerArg>,
    tls: Option<TlsArg>,
    tls_root_cert: Option<PathBuf>,
    listen: Option<String>,
    pg_bin: Option<PathBuf>,
    pg_port: Option<u16>,
    #[serde(default)]
    lanes: LanesFile,
    #[serde(default)]
    limits: LimitsFile,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct LanesFile {
    count: Option<usize>,
    batch: Option<usize>,
    batch_time_ms: Option<u64>,
    waiting_per_tenant: Option<usize>,
    waiting_per_lane: Option<usize>,
    detours: Option<usize>,
    lock_timeout_ms: Option<u64>,
    drain_ms: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LimitsFile {
    pub(crate) request_bytes: Option<usize>,
    pub(crate) body_bytes: Option<usize>,
    pub(crate) items: Option<usize>,
}

/// A database that is there already.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) place: Place,
    /// With the user and password of the URL: only `init` connects so.
    pub(crate) admin: Config,
}

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) home: Home,
    pub(crate) foreign: Option<Foreign>,
    pub(crate) pooler: Pooler,
    pub(crate) tls: Tls,
    pub(crate) listen: String,
    pub(crate) pg_bin: Option<PathBuf>,
    pub(crate) pg_port: u16,
    pub(crate) lanes: counterfoil_intent::Options,
    pub(crate) limits: LimitsFile,
}

impl Settings {
    pub(crate) fn read(args: SettingsArgs) -> Result<Self, Error> {
        let home = Home::new(args.data)?;
        let (path, text) = match args.config {
            Some(path) => match home::read(&path)? {
                Some(text) => (path, Some(text)),
                None => return Err(Error::NoFile { path }),
            },
            None => (home.dir().join("counterfoil.toml"), home.config()?),
        };
        let file: File = match text {
            Some(text) => toml::from_str(&text).map_err(|source| Error::Toml {
                path,
                source: Box::new(source),
            })?,
            None => File::default(),
        };
        let tls = match args.tls.or(file.tls) {
            None | Some(TlsArg::Disable) => TlsMode::Disable,
            Some(TlsArg::Require) => TlsMode::Require,
            Some(TlsArg::VerifyFull) => TlsMode::VerifyFull,
        };
        let url = args.database_url.or(file.database_url);
        Ok(Self {
            foreign: url.as_deref().map(foreign).transpose()?,
            pooler: match args.pooler.or(file.pooler) {
                None | Some(PoolerArg::None) => Pooler::None,
                Some(PoolerArg::Transaction) => Pooler::Transaction,
            },
            tls: Tls {
                mode: tls,
                root_cert: args.tls_root_cert.or(file.tls_root_cert),
            },
            listen: file.listen.unwrap_or_else(|| "127.0.0.1:7070".to_owned()),
            pg_bin: file.pg_bin,
            pg_port: file.pg_port.unwrap_or(0),
            lanes: file.lanes.options(),
            limits: file.limits,
            home,
        })
    }

    pub(crate) fn with_up(mut self, up: UpArgs) -> Self {
        self.listen = up.listen.unwrap_or(self.listen);
        self.pg_bin = up.pg_bin.or(self.pg_bin);
        self.pg_port = up.pg_port.unwrap_or(self.pg_port);
        self.lanes.lanes = up.lanes.unwrap_or(self.lanes.lanes).max(1);
        self
    }
}

impl LanesFile {
    fn options(&self) -> counterfoil_intent::Options {
        let default = counterfoil_intent::Options::default();
        let ms = |value: Option<u64>, default| value.map_or(default, Duration::from_millis);
        counterfoil_intent::Options {
            lanes: self.count.unwrap_or(default.lanes).max(1),
            batch: self.batch.unwrap_or(default.batch).max(1),
            batch_time: ms(self.batch_time_ms, default.batch_time),
            waiting_per_tenant: self.waiting_per_tenant.unwrap_or(default.waiting_per_tenant),
            waiting_per_lane: self.waiting_per_lane.unwrap_or(default.waiting_per_lane),
            detours: self.detours.unwrap_or(default.detours).max(1),
            lock_timeout: ms(self.lock_timeout_ms, default.lock_timeout),
            drain: ms(self.drain_ms, default.drain),
            ..default
        }
    }
}

fn foreign(url: &str) -> Result<Foreign, Error> {
    let admin: Config = url
        .parse()
        .map_err(|error: tokio_postgres::Error| Error::Url(Some(Box::new(error))))?;
    let host = match admin.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
        Some(tokio_postgres::config::Host::Unix(path)) => path.to_string_lossy().into_owned(),
        None => return Err(Error::Url(None)),
    };
    let port = admin.get_ports().first().copied().unwrap_or(5432);
    let dbname = admin.get_dbname().ok_or(Error::Url(None))?.to_owned();
    Ok(Foreign {
        place: Place { host, port, dbname },
        admin,
    })
}
