//! Why a lost COMMIT is not asked after with `pg_xact_status`.
//!
//! On a cluster of its own: what happens here takes the whole server down.

use std::path::{Path, PathBuf};

use counterfoil_pg::{Client, Tls, connect_admin};
use counterfoil_pg_embedded::{Binaries, Cluster, Mode, Options, Running};

use crate::cluster::variable_of;

/// A commit that was acknowledged before its WAL was flushed (`synchronous_commit = off`, or a
/// failover to a standby that had not got it) is lost in a crash. Its transaction number was never
/// durable either, so it is handed out again; and `pg_xact_status` reports on the new owner. The
/// row written in the transaction cannot lie: it went with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_a_transaction_number_may_be_somebody_elses() {
    let folder = Folder::new();
    let server = start(folder.0.clone());
    let mut server = tokio::task::spawn_blocking(server).await.unwrap();
    let client = connect(&server).await;
    client
        .batch_execute("CREATE TABLE outcome (token text PRIMARY KEY); CREATE TABLE other (n int)")
        .await
        .unwrap();

    // Whether the WAL writer flushes in between is up to it: try until it did not.
    for attempt in 0..10 {
        let client = connect(&server).await;
        let token = format!("token {attempt}");
        client
            .batch_execute("CHECKPOINT; SET synchronous_commit = off")
            .await
            .unwrap();
        let xid = write(&client, &format!("INSERT INTO outcome VALUES ('{token}')")).await;
        // It is committed, says the server, and everybody sees it.
        assert_eq!(status(&client, &xid).await.as_deref(), Some("committed"));
        server = tokio::task::spawn_blocking(move || {
            server.stop(Mode::Immediate).unwrap();
            server.restart(&|_| {}).unwrap();
            server
        })
        .await
        .unwrap();

        let client = connect(&server).await;
        let sql = "SELECT count(*) FROM outcome WHERE token = $1";
        if client.query_one(sql, &[&token]).await.unwrap().get::<_, i64>(0) == 1 {
            continue;
        }
        // Lost. Now other people work, until one of them is given the same number.
        loop {
            let other = write(&client, "INSERT INTO other VALUES (1)").await;
            let (other, lost): (u64, u64) = (other.parse().unwrap(), xid.parse().unwrap());
            if other >= lost {
                assert_eq!(other, lost, "the number was not handed out again");
                break;
            }
        }
        assert_eq!(status(&client, &xid).await.as_deref(), Some("committed"), "a lie");
        let there: i64 = client.query_one(sql, &[&token]).await.unwrap().get(0);
        assert_eq!(there, 0, "the row tells the truth");
        return;
    }
    panic!("no commit was lost in ten crashes");
}

/// Runs a statement in a transaction of its own; the transaction's number.
async fn write(client: &Client, statement: &str) -> String {
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(statement).await.unwrap();
    let sql = "SELECT pg_current_xact_id()::text";
    let xid = client.query_one(sql, &[]).await.unwrap().get(0);
    client.batch_execute("COMMIT").await.unwrap();
    xid
}

/// What the server says became of a transaction.
async fn status(client: &Client, xid: &str) -> Option<String> {
    let sql = format!("SELECT pg_xact_status('{xid}'::xid8)");
    client.query_one(&sql, &[]).await.unwrap().get(0)
}

fn start(folder: PathBuf) -> impl FnOnce() -> Running {
    move || {
        let bin = variable_of("COUNTERFOIL_TEST_PG15_BIN");
        let binaries = Binaries::find(Some(Path::new(&bin))).unwrap();
        let quiet = [
            // Nothing but ourselves writes, and nothing flushes for us.
            ("autovacuum", "off"),
            ("wal_writer_delay", "10s"),
            ("wal_level", "minimal"),
            ("max_wal_senders", "0"),
            ("shared_buffers", "16MB"),
        ];
        let settings = quiet.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let options = Options {
            settings,
            ..Options::default()
        };
        Cluster::open(binaries, &folder, options, &|_| {})
            .unwrap()
            .start(&|_| {})
            .unwrap()
    }
}

async fn connect(server: &Running) -> Client {
    let config = format!("{} dbname=postgres", server.conninfo()).parse().unwrap();
    connect_admin(&config, &Tls::default()).await.unwrap()
}

/// A folder that goes away with the test, and that the server's user can enter.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(PathBuf::from(format!("/tmp/counterfoil-xact-{}", std::process::id())))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
