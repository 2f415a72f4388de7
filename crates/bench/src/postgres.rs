//! The PostgreSQL a run has to itself, and a connection that looks after it.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use counterfoil_pg_embedded as embedded;
use tokio_postgres::{Client, Config, NoTls};

use crate::error::{Error, Result};
use crate::machine::Cpu;

/// The database of both sides.
const DATABASE: &str = "bench";

/// The folder of a run, removed with everything in it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// Below `parent`, or else where temporary files outlive a restart: `/tmp` may be memory, and
    /// then the benchmark would measure a server that never waits for a disk.
    pub(crate) fn new(parent: Option<&Path>, keep: bool) -> Result<Self> {
        let parent = match (parent, std::env::var_os("TMPDIR")) {
            (Some(parent), _) => parent.to_owned(),
            (None, Some(tmp)) => PathBuf::from(tmp),
            (None, None) => PathBuf::from("/var/tmp"),
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_millis();
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent.join(format!("counterfoil-bench-{}-{since}-{next}", std::process::id()));
        // Not one that is there already.
        DirBuilder::new()
            .mode(0o711)
            .create(&path)
            .map_err(Error::file("create", &path))?;
        // PostgreSQL's user has to pass through it where we are root, whatever the umask is.
        let open = fs::Permissions::from_mode(0o711);
        fs::set_permissions(&path, open).map_err(Error::file("open up", &path))?;
        Ok(Self { path, keep })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.keep {
            tracing::info!(path = %self.path.display(), "kept");
        } else if let Err(error) = fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, path = %self.path.display(), "could not be removed");
        }
    }
}

/// How to reach the server.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) socket_dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) user: String,
    pub(crate) password: String,
}

impl Address {
    /// Over the Unix socket, which is the fastest way there is.
    pub(crate) async fn connect(&self) -> Result<Client> {
        self.connect_to(DATABASE).await
    }

    async fn connect_to(&self, database: &str) -> Result<Client> {
        let mut config = Config::new();
        config
            .host_path(&self.socket_dir)
            .port(self.port)
            .user(&self.user)
            .password(&self.password);
        config.dbname(database).application_name("counterfoil bench");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(async move {
            // Its errors reach whoever waits for an answer.
            let _ = connection.await;
        });
        Ok(client)
    }

    pub(crate) fn url(&self, host: &str) -> String {
        format!(
            "postgresql://{}:{}@{host}:{}/{DATABASE}",
            self.user, self.password, self.port
        )
    }

    /// The URL over TCP, and over the socket.
    pub(crate) fn urls(&self) -> (String, String) {
        let socket: String = self.socket_dir.to_string_lossy().bytes().map(percent).collect();
        (self.url("127.0.0.1"), self.url(&socket))
    }
}

fn percent(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    }
}

/// A running server, tuned as `counterfoil up` tunes it.
#[derive(Debug)]
pub(crate) struct Postgres {
    running: embedded::Running,
}

impl Postgres {
    pub(crate) async fn start(
        bin: Option<PathBuf>,
        dir: PathBuf,
        settings: Vec<(String, String)>,
    ) -> Result<(Self, Vec<String>)> {
        let started = tokio::task::spawn_blocking(move || {
            let words = std::cell::RefCell::new(Vec::new());
            let say = |text: &str| words.borrow_mut().push(text.to_owned());
            let options = embedded::Options {
                settings,
                ..embedded::Options::default()
            };
            let binaries = embedded::Binaries::for_cluster(bin.as_deref(), &dir, &say)?;
            let running = embedded::Cluster::open(binaries, &dir, options, &say)?.start(&say)?;
            Ok((Self { running }, words.into_inner()))
        });
        started.await.map_err(|_| Error::Thread)?
    }

    pub(crate) fn version(&self) -> String {
        self.running.version().to_string()
    }

    pub(crate) fn address(&self) -> Address {
        Address {
            socket_dir: self.running.socket_dir().to_owned(),
            port: self.running.port(),
            user: self.running.user().to_owned(),
            password: self.running.password().to_owned(),
        }
    }

    pub(crate) async fn stop(mut self) -> Result<()> {
        let stopped = tokio::task::spawn_blocking(move || self.running.stop(embedded::Mode::Fast));
        Ok(stopped.await.map_err(|_| Error::Thread)??)
    }
}

/// The server's counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    at: Instant,
    wal: i64,
    /// Transaction ids given out: one for every transaction that wrote.
    writers: i64,
    cpu: Cpu,
}

/// What went on between two marks, a second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// Bytes of WAL.
    pub(crate) wal: f64,
    /// Transactions that wrote.
    pub(crate) commits: f64,
    /// Seconds of processor time: the load, our server, PostgreSQL.
    pub(crate) cpu: [f64; 3],
    /// The same of everybody else on the machine.
    pub(crate) others: f64,
}

impl Mark {
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn rates(self, later: Self) -> Rates {
        let seconds = (later.at - self.at).as_secs_f64().max(1e-9);
        let cpu = |of: fn(Cpu) -> Duration| of(later.cpu).saturating_sub(of(self.cpu)).as_secs_f64() / seconds;
        let cpu_of = [cpu(|cpu| cpu.load), cpu(|cpu| cpu.server), cpu(|cpu| cpu.postgres)];
        Rates {
            wal: (later.wal - self.wal) as f64 / seconds,
            commits: (later.writers - self.writers) as f64 / seconds,
            cpu: cpu_of,
            others: (cpu(|cpu| cpu.machine) - cpu_of.iter().sum::<f64>()).max(0.0),
        }
    }
}

/// The superuser's connection.
pub(crate) struct Control {
    pub(crate) client: Client,
    postmaster: Option<u32>,
    /// Our server, once it is there.
    pub(crate) server: Option<u32>,
}

impl Control {
    pub(crate) async fn new(postgres: &Postgres) -> Result<Self> {
        let address = postgres.address();
        let maintenance = address.connect_to("postgres").await?;
        maintenance
            .batch_execute(&format!("CREATE DATABASE {DATABASE}"))
            .await?;
        Ok(Self {
            client: address.connect().await?,
            postmaster: postgres.running.pid(),
            server: None,
        })
    }

    /// `pg_stat_database` would lag by up to a second for each connection; ids do not.
    pub(crate) async fn mark(&self) -> Result<Mark> {
        let row = self
            .client
            .query_one(include_str!("../sql/counters_read.sql"), &[])
            .await?;
        let cpu = Cpu::now(self.server, self.postmaster);
        Ok(Mark {
            at: Instant::now(),
            wal: row.get(0),
            writers: row.get(1),
            cpu,
        })
    }

    /// Leaves nothing over that the next side would pay for.
    pub(crate) async fn settle(&self) -> Result<()> {
        // Not in one message: VACUUM refuses the transaction that this would be.
        for statement in ["VACUUM (ANALYZE)", "CHECKPOINT"] {
            self.client.batch_execute(statement).await?;
        }
        Ok(())
    }
}
