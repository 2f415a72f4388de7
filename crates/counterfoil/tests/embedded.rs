//! `counterfoil up` with the PostgreSQL it brings along.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use counterfoil_pg::TenantId;
use counterfoil_test::Server;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

use crate::client::Client;
use crate::harness::{Home, PATIENCE, Up, fresh, open_books, seed, until};

const FIRST: TenantId = TenantId(1);

fn alive(pid: rustix::process::Pid) -> bool {
    // A process that ended and that nobody has collected is gone.
    std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| !stat.rsplit(") ").next().unwrap_or_default().starts_with('Z'))
}

async fn up(home: &Arc<Home>, server: Server) -> (Up, Client) {
    let bin = server.bin_dir().display().to_string();
    let up = Up::start(home, &["--pg-bin", &bin]).await;
    let client = up.client(FIRST, &home.operator_key());
    (up, client)
}

#[tokio::test]
async fn up_stops_cleanly_on_ctrl_c_and_starting_again_finds_everything() {
    let home = Home::new();
    let (first_up, mut client) = up(&home, Server::Pg18).await;
    let ready = client.send("GET", "/readyz", &[], b"").await.unwrap().json();
    assert_eq!(ready["commits"], "durable", "{ready}");
    open_books(&mut client, &["till"]).await;
    let body = json!({ "key": "k", "from": "bank", "to": "till", "amount": "5" });
    let first = client.post("/transfers", &body).await;
    assert_eq!(first.status, 201);
    // Commands find the running server's database.
    assert!(home.ok(&["accounts"]).await.contains("till"));
    assert!(home.ok(&["stub", "k"]).await.starts_with("accepted\tledger.transfer"));
    let postmaster = home.postmaster().expect("PostgreSQL runs");
    let key = home.operator_key();
    first_up.stop().await;
    assert!(!alive(postmaster) && home.postmaster().is_none(), "both are stopped");
    assert!(!home.dir.join("server.toml").exists());
    home.run(&["accounts"])
        .await
        .could_not_run(&["no server is running", "counterfoil up"]);

    // SIGTERM is as good.
    let (mut again, mut client) = up(&home, Server::Pg18).await;
    assert_eq!(home.operator_key(), key);
    assert_eq!(client.account("till", "posted").await, "5.00");
    let replay = client.post("/transfers", &body).await;
    assert_eq!(
        (replay.status, replay.replayed(), replay.text()),
        (200, true, first.text())
    );
    home.ok(&["check"]).await;
    let pid = rustix::process::Pid::from_raw(again.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (code, log) = again.ended().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("stopping PostgreSQL") && log.trim_end().ends_with("stopped"),
        "{log}"
    );
    assert!(home.postmaster().is_none());
}

#[tokio::test]
async fn kill_9_of_up_leaves_postgres_running_and_the_next_up_adopts_it() {
    let home = Home::new();
    let (first_up, mut client) = up(&home, Server::Pg15).await;
    open_books(&mut client, &["till"]).await;
    let body = json!({ "key": "k", "from": "bank", "to": "till", "amount": "5" });
    let first = client.post("/transfers", &body).await;
    assert_eq!(first.status, 201);
    let postmaster = home.postmaster().expect("PostgreSQL runs");
    first_up.kill().await;
    assert!(alive(postmaster), "PostgreSQL goes on");
    home.run(&["accounts"]).await.could_not_run(&["no server is running"]);

    let (second_up, mut client) = up(&home, Server::Pg15).await;
    assert_eq!(home.postmaster(), Some(postmaster), "adopted, not started");
    let replay = client.post("/transfers", &body).await;
    assert_eq!(
        (replay.status, replay.replayed(), replay.text()),
        (200, true, first.text())
    );
    assert_eq!(
        client
            .post(
                "/transfers",
                &json!({ "key": fresh(), "from": "till", "to": "bank", "amount": "1" })
            )
            .await
            .status,
        201
    );
    assert_eq!(client.account("till", "posted").await, "4.00");
    second_up.stop().await;
    until("the adopted PostgreSQL is stopped", async || !alive(postmaster)).await;
    assert!(home.postmaster().is_none());

    // PostgreSQL killed with its server: the next start recovers.
    let (third_up, _) = up(&home, Server::Pg15).await;
    let postmaster = home.postmaster().expect("PostgreSQL runs");
    assert!(third_up.log().lines().all(|line| !line.contains("ERROR")));
    rustix::process::kill_process(postmaster, rustix::process::Signal::KILL).unwrap();
    third_up.kill().await;
    let (fourth_up, mut client) = up(&home, Server::Pg15).await;
    assert_eq!(client.account("till", "posted").await, "4.00");
    home.ok(&["check"]).await;
    fourth_up.stop().await;
}

#[tokio::test]
async fn a_postgres_that_is_killed_is_started_again_and_intents_land_as_before() {
    let home = Home::new();
    let (up, mut client) = up(&home, Server::Pg18).await;
    open_books(&mut client, &["till"]).await;
    for signal in [rustix::process::Signal::KILL, rustix::process::Signal::QUIT] {
        let postmaster = home.postmaster().expect("PostgreSQL runs");
        rustix::process::kill_process(postmaster, signal).unwrap();
        until("there is another PostgreSQL", async || {
            home.postmaster().is_some_and(|now| now != postmaster)
        })
        .await;
        // One key all along: however many tries it takes, it is one transfer.
        let body = json!({ "key": fresh(), "from": "bank", "to": "till", "amount": "5" });
        let begun = Instant::now();
        while !matches!(client.post("/transfers", &body).await.status, 200 | 201) {
            assert!(begun.elapsed() < PATIENCE, "intents land again");
        }
    }
    assert_eq!(client.account("till", "posted").await, "10.00");
    assert!(up.log().contains("PostgreSQL has ended by itself"), "{}", up.log());
    home.ok(&["check"]).await;
    up.stop().await;
    assert!(home.postmaster().is_none());
}

#[tokio::test]
async fn a_postgres_that_cannot_be_started_again_ends_the_server_with_one_sentence() {
    let home = Home::new();
    let (mut up, _) = up(&home, Server::Pg15).await;
    // What it would start from is gone.
    std::fs::rename(home.dir.join("pg/pgdata/base"), home.dir.join("base.away")).unwrap();
    std::fs::remove_file(home.dir.join("pg/pgdata/global/pg_control")).unwrap();
    rustix::process::kill_process(home.postmaster().unwrap(), rustix::process::Signal::KILL).unwrap();
    let (code, log) = up.ended().await;
    assert_eq!(code, Some(2), "{log}");
    let last = log.lines().last().unwrap_or_default();
    assert!(
        last.contains("PostgreSQL ended again and again and is not started any more") && last.contains("pg/log"),
        "{log}"
    );
}

#[tokio::test]
async fn the_postgres_that_is_brought_along_has_connections_for_as_many_lanes_as_there_are() {
    let home = Home::new();
    home.write("counterfoil.toml", "[lanes]\ncount = 60\n");
    let (up, mut client) = up(&home, Server::Pg15).await;
    open_books(&mut client, &["till"]).await;
    let conf = std::fs::read_to_string(home.dir.join("pg/pgdata/counterfoil.conf")).unwrap();
    let set = conf.lines().rfind(|line| line.starts_with("max_connections")).unwrap();
    // 3 × 60 + 8 + 3 for lanes, 15 for the other roles, 3 for /readyz; twice, and 20.
    assert!(set.contains("438"), "{set}");
    assert!(!up.log().contains("max_connections"), "{}", up.log());
    up.stop().await;
}

#[tokio::test]
async fn case_13_two_servers_on_one_data_directory() {
    let home = Home::new();
    let (first, mut client) = up(&home, Server::Pg18).await;
    let bin = Server::Pg18.bin_dir().display().to_string();
    let ended = home.run(&["up", "--listen", "127.0.0.1:0", "--pg-bin", &bin]).await;
    ended.could_not_run(&["another process", &first.pid.to_string(), "stop it first"]);
    // The first does not even notice.
    open_books(&mut client, &["till"]).await;
    assert!(home.ok(&["accounts"]).await.contains("till"));
    first.stop().await;
}

#[tokio::test]
async fn kill_9_of_up_in_the_middle_of_initdb_is_not_in_the_way_of_the_next_which_comes_at_once() {
    let home = Home::new();
    let bin = Server::Pg15.bin_dir().display().to_string();
    let mut starting = home
        .command(&["up", "--listen", "127.0.0.1:0", "--pg-bin", &bin])
        .spawn()
        .unwrap();
    // Its longest phase: until that is over it does not notice that nobody listens to it any more.
    let fresh = home.dir.join("pg/pgdata.new");
    until("initdb is at work", async || works_in(&fresh, "--single")).await;
    starting.kill().await.unwrap();
    works_as_new(&home).await;
}

#[tokio::test]
async fn kill_9_of_up_at_any_time_of_its_first_start_leaves_nothing_in_the_way_of_the_next() {
    let mut rng = StdRng::seed_from_u64(seed());
    let home = Home::new();
    let bin = Server::Pg15.bin_dir().display().to_string();
    for _ in 0..5 {
        let mut starting = home
            .command(&["up", "--listen", "127.0.0.1:0", "--pg-bin", &bin])
            .spawn()
            .unwrap();
        let pause = Duration::from_millis(rng.random_range(20..1_800));
        println!("killed after {pause:?}");
        tokio::time::sleep(pause).await;
        starting.kill().await.unwrap();
    }
    works_as_new(&home).await;
}

/// Whether a process with this argument works in the folder.
fn works_in(dir: &Path, argument: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let here = |process: &PathBuf| std::fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == dir);
    processes.filter(here).any(|process| {
        let arguments = std::fs::read_to_string(process.join("cmdline"));
        arguments.is_ok_and(|arguments| arguments.split('\0').any(|one| one == argument))
    })
}

async fn works_as_new(home: &Arc<Home>) {
    let (up, mut client) = up(home, Server::Pg15).await;
    open_books(&mut client, &["till"]).await;
    let tenants = client.send("GET", "/v1/tenants", &[], b"").await.unwrap().json();
    assert_eq!(tenants["tenants"].as_array().unwrap().len(), 1, "{tenants}");
    home.ok(&["check"]).await;
    up.stop().await;
    assert!(!home.dir.join("pg/pgdata.new").exists());
}
