//! A cluster of a test's own, to be stopped and killed.

use std::path::PathBuf;

use counterfoil_migrate::{Existing, Init};
use counterfoil_pg::{Config, Database, Settings, Tls};
use counterfoil_pg_embedded::{Binaries, Cluster, Mode, Options, Running};

use crate::Server;
use crate::template::{migrations, passwords, settings_on};

/// A PostgreSQL in a folder of its own, on a port that stays the same over restarts. When this value
/// is dropped, the server is stopped and the folder removed.
#[derive(Debug)]
pub struct TestCluster {
    dir: PathBuf,
    /// Taken out while a thread works on it.
    running: Option<Running>,
}

impl TestCluster {
    /// Starts one with these settings of `postgresql.conf`. Without fsync unless `settings` says
    /// otherwise: a killed server needs none, only a machine that loses power does.
    pub async fn start(server: Server, settings: &[(&str, &str)]) -> Self {
        let dir = std::env::temp_dir().join(format!("cf-test-{}-{:08x}", std::process::id(), rand::random::<u32>()));
        let options = Options {
            port: free_port(),
            durable: false,
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..Options::default()
        };
        let (bin_dir, home) = (server.bin_dir(), dir.clone());
        let running = blocking(move || {
            let binaries = Binaries::find(Some(&bin_dir)).expect("the programs of the test server");
            let cluster = Cluster::open(binaries, &home, options, &|_| {}).expect("a cluster in a new folder");
            cluster.start(&|_| {}).expect("a server in a new cluster")
        })
        .await;
        Self {
            dir,
            running: Some(running),
        }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the server is put back after each use")
    }

    /// The superuser, on database `postgres`.
    #[must_use]
    pub fn admin(&self) -> Config {
        let mut config: Config = self
            .running()
            .conninfo()
            .parse()
            .expect("a connection string of our own");
        config.dbname("postgres").application_name("counterfoil-test");
        config
    }

    /// The five roles in one database of this cluster, each with the password `secret`.
    #[must_use]
    pub fn settings(&self, dbname: &str) -> Settings {
        settings_on(&self.admin(), dbname)
    }

    /// Makes a database with every migration applied, and pools on it.
    pub async fn database(&self, dbname: &str) -> Database {
        let wanted = Init {
            dbname: dbname.to_owned(),
            create_database: true,
            passwords: passwords(),
            existing: Existing::Keep,
        };
        counterfoil_migrate::init(&self.admin(), &Tls::default(), &wanted)
            .await
            .expect("init");
        let db = Database::new(self.settings(dbname)).expect("settings without TLS are good");
        counterfoil_migrate::run(&db, &migrations()).await.expect("migrations");
        db
    }

    /// As in a crash: nothing is flushed, and the next start recovers.
    pub async fn stop_immediately(&mut self) {
        self.with(|running| running.stop(Mode::Immediate).expect("an immediate stop"))
            .await;
    }

    /// SIGKILL to the postmaster.
    pub async fn kill(&mut self) {
        self.with(|running| running.kill().expect("a kill")).await;
    }

    /// Starts it again, on the same port; a server that runs is stopped in good order first.
    pub async fn restart(&mut self) {
        self.with(|running| running.restart(&|_| {}).expect("a restart")).await;
    }

    async fn with(&mut self, work: impl FnOnce(&mut Running) + Send + 'static) {
        let mut running = self.running.take().expect("the server is put back after each use");
        let running = blocking(move || {
            work(&mut running);
            running
        })
        .await;
        self.running = Some(running);
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            // Nothing in it is worth writing back.
            if let Err(error) = running.stop(Mode::Immediate) {
                eprintln!("a test cluster was left behind in {}: {error}", self.dir.display());
            }
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The server would pick one itself, but another at each start. Below the ports that the kernel gives
/// to outgoing connections, one of which could take it while the server is down.
fn free_port() -> u16 {
    std::iter::repeat_with(|| rand::random_range(20_000..32_000))
        .take(1000)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
