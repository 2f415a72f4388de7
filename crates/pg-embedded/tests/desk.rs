//! What every story needs: a folder that goes away, programs, a query, a process of our own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use counterfoil_pg_embedded::{Binaries, Cluster, Options, Running};
use tokio_postgres::{Config, NoTls, SimpleQueryMessage};

/// A folder below /tmp that the server's user can enter, removed at the end.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/tmp/cf-pg-{}-{next}", std::process::id())).join(name);
        fs::create_dir_all(&path).expect("a folder");
        let top = path.parent().expect("it has a parent");
        fs::set_permissions(top, fs::Permissions::from_mode(0o711)).expect("opened");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.0.parent().expect("it has a parent"));
    }
}

pub fn quiet(_: &str) {}

pub fn binaries() -> Binaries {
    let named = std::env::var_os("COUNTERFOIL_TEST_PG15_BIN").map(PathBuf::from);
    Binaries::find(named.as_deref()).expect("a PostgreSQL on this machine")
}

/// Thrown away at the end of the story, so fsync would only cost time.
pub fn careless() -> Options {
    Options {
        durable: false,
        settings: vec![("shared_buffers".into(), "16MB".into())],
        ..Options::default()
    }
}

pub fn open(dir: &Path) -> counterfoil_pg_embedded::Result<Cluster> {
    Cluster::open(binaries(), dir, careless(), &quiet)
}

pub fn started(dir: &Path) -> Running {
    let cluster = open(dir).expect("it opens");
    cluster.start(&quiet).expect("it starts")
}

/// Runs SQL as the superuser; the first column of the last row.
pub fn query(running: &Running, sql: &str) -> String {
    let mut config = Config::new();
    config.host(running.host());
    query_with(config, running, sql)
}

/// The same over the Unix socket.
pub fn query_over_socket(running: &Running, sql: &str) -> String {
    let mut config = Config::new();
    config.host_path(running.socket_dir());
    query_with(config, running, sql)
}

#[allow(
    clippy::disallowed_methods,
    reason = "below the crate that owns Tx, there is only the client"
)]
fn query_with(mut config: Config, running: &Running, sql: &str) -> String {
    config
        .port(running.port())
        .user(running.user())
        .password(running.password())
        .dbname("postgres");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = config.connect(NoTls).await.expect("a connection");
        let connection = tokio::spawn(connection);
        let messages = client.simple_query(sql).await.expect("an answer");
        drop(client);
        let _ = connection.await;
        let cell = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        messages.iter().filter_map(cell).next_back().unwrap_or_default()
    })
}

/// Another process that runs one of the ignored parts of a story.
pub fn part(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary"));
    command
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .stdin(Stdio::null());
    command
}

#[allow(clippy::disallowed_methods, reason = "a test without a runtime")]
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < deadline, "waited too long: {what}");
        sleep(Duration::from_millis(20));
    }
}
