//! Settings: flags over environment (both by the argument parser) over counterfoil.toml.

use std::path::PathBuf;
use std::time::Duration;

use counterfoil_pg::{Config, Pooler, Tls, TlsMode};
use serde::Deserialize;

use crate::args::{PoolerArg, SettingsArgs, TlsArg, UpArgs};
use crate::home::{self, Address, Home};

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
    #[error("{name} is {value}, and has to be from {least} to {most}")]
    Range {
        name: &'static str,
        value: i64,
        least: u32,
        most: u32,
    },
    #[error(transparent)]
    Home(#[from] home::Error),
}

/// counterfoil.toml. Unknown keys are errors.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
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
    events: EventsFile,
    #[serde(default)]
    limits: LimitsFile,
}

/// Numbers as they are written: [`Range`] says which are taken.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct LanesFile {
    count: Option<i64>,
    batch: Option<i64>,
    batch_time_ms: Option<i64>,
    waiting_per_tenant: Option<i64>,
    waiting_per_lane: Option<i64>,
    detours: Option<i64>,
    lock_timeout_ms: Option<i64>,
    drain_ms: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct EventsFile {
    workers: Option<i64>,
    batch: Option<i64>,
    waiting_per_tenant: Option<i64>,
    waiting: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
struct LimitsFile {
    request_bytes: Option<i64>,
    body_bytes: Option<i64>,
    items: Option<i64>,
}

/// What of a request may be set; `None`: the server's default.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) request_bytes: Option<usize>,
    pub(crate) body_bytes: Option<usize>,
    pub(crate) items: Option<usize>,
}

/// What a number may be. `docs/reference/cli.md` has the same ranges, and a test compares them.
struct Range {
    name: &'static str,
    least: u32,
    most: u32,
}

/// A lane is a connection, and beyond a few per core they only take turns.
const LANES: Range = range("count in [lanes] (--lanes)", 1, 256);
const BATCH: Range = range("batch in [lanes]", 1, 10_000);
const BATCH_TIME: Range = range("batch_time_ms in [lanes]", 1, 10_000);
const WAITING_PER_TENANT: Range = range("waiting_per_tenant in [lanes]", 1, 1_000_000);
const WAITING_PER_LANE: Range = range("waiting_per_lane in [lanes]", 1, 1_000_000);
const DETOURS: Range = range("detours in [lanes]", 1, 256);
/// Zero would wait for ever; and after 15 s PostgreSQL ends any statement of a lane.
const LOCK_TIMEOUT: Range = range("lock_timeout_ms in [lanes]", 1, 14_000);
const DRAIN: Range = range("drain_ms in [lanes]", 1, 3_600_000);
const EVENT_WORKERS: Range = range("workers in [events]", 1, 64);
const EVENT_BATCH: Range = range("batch in [events]", 1, 100_000);
const EVENTS_PER_TENANT: Range = range("waiting_per_tenant in [events]", 1, 10_000_000);
const EVENTS_WAITING: Range = range("waiting in [events]", 1, 10_000_000);
/// At the most what the server holds in memory of one tenant's large requests.
const REQUEST_BYTES: Range = range("request_bytes in [limits]", 1_024, 32 << 20);
const BODY_BYTES: Range = range("body_bytes in [limits]", 1_024, 32 << 20);
const ITEMS: Range = range("items in [limits]", 1, 100_000);

const fn range(name: &'static str, least: u32, most: u32) -> Range {
    Range { name, least, most }
}

impl Range {
    fn take(&self, value: Option<i64>) -> Result<Option<u32>, Error> {
        let Some(value) = value else { return Ok(None) };
        match u32::try_from(value) {
            Ok(fits) if (self.least..=self.most).contains(&fits) => Ok(Some(fits)),
            _ => Err(Error::Range {
                name: self.name,
                value,
                least: self.least,
                most: self.most,
            }),
        }
    }

    fn number(&self, value: Option<i64>) -> Result<Option<usize>, Error> {
        Ok(self.take(value)?.map(|value| value as usize))
    }

    fn millis(&self, value: Option<i64>) -> Result<Option<Duration>, Error> {
        Ok(self.take(value)?.map(|value| Duration::from_millis(value.into())))
    }
}

/// A database that is there already.
#[derive(Debug, Clone)]
pub(crate) struct Foreign {
    pub(crate) address: Address,
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
    pub(crate) events: counterfoil_events::Options,
    pub(crate) limits: Limits,
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
            lanes: file.lanes.options()?,
            events: file.events.options()?,
            limits: file.limits.limits()?,
            home,
        })
    }

    pub(crate) fn with_up(mut self, up: UpArgs) -> Result<Self, Error> {
        self.listen = up.listen.unwrap_or(self.listen);
        self.pg_bin = up.pg_bin.or(self.pg_bin);
        self.pg_port = up.pg_port.unwrap_or(self.pg_port);
        self.lanes.lanes = LANES.number(up.lanes)?.unwrap_or(self.lanes.lanes);
        Ok(self)
    }
}

impl LanesFile {
    fn options(&self) -> Result<counterfoil_intent::Options, Error> {
        let default = counterfoil_intent::Options::default();
        Ok(counterfoil_intent::Options {
            lanes: LANES.number(self.count)?.unwrap_or(default.lanes),
            batch: BATCH.number(self.batch)?.unwrap_or(default.batch),
            batch_time: BATCH_TIME.millis(self.batch_time_ms)?.unwrap_or(default.batch_time),
            waiting_per_tenant: WAITING_PER_TENANT
                .number(self.waiting_per_tenant)?
                .unwrap_or(default.waiting_per_tenant),
            waiting_per_lane: WAITING_PER_LANE
                .number(self.waiting_per_lane)?
                .unwrap_or(default.waiting_per_lane),
            detours: DETOURS.number(self.detours)?.unwrap_or(default.detours),
            lock_timeout: LOCK_TIMEOUT
                .millis(self.lock_timeout_ms)?
                .unwrap_or(default.lock_timeout),
            drain: DRAIN.millis(self.drain_ms)?.unwrap_or(default.drain),
            ..default
        })
    }
}

impl EventsFile {
    fn options(&self) -> Result<counterfoil_events::Options, Error> {
        let default = counterfoil_events::Options::default();
        Ok(counterfoil_events::Options {
            workers: EVENT_WORKERS.number(self.workers)?.unwrap_or(default.workers),
            batch: EVENT_BATCH.number(self.batch)?.unwrap_or(default.batch),
            waiting_per_tenant: EVENTS_PER_TENANT
                .number(self.waiting_per_tenant)?
                .unwrap_or(default.waiting_per_tenant),
            waiting: EVENTS_WAITING.number(self.waiting)?.unwrap_or(default.waiting),
        })
    }
}

impl LimitsFile {
    fn limits(&self) -> Result<Limits, Error> {
        Ok(Limits {
            request_bytes: REQUEST_BYTES.number(self.request_bytes)?,
            body_bytes: BODY_BYTES.number(self.body_bytes)?,
            items: ITEMS.number(self.items)?,
        })
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
        address: Address { host, port, dbname },
        admin,
    })
}
