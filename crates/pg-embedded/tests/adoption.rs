//! Our process was killed and PostgreSQL lives on: the next one takes it over.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use counterfoil_pg_embedded::{Cluster, Error, Mode, Options};

use crate::desk::{Folder, binaries, careless, open, part, query, quiet, sleep, started, wait_for};

const DIR: &str = "CF_PART_DIR";

/// Not a story but a part in some: starts a cluster, says so with a file, and waits to be killed.
#[test]
#[ignore = "a part of other tests, run by them in a process of its own"]
fn part_that_starts_a_server_and_hangs() {
    let dir = PathBuf::from(std::env::var_os(DIR).expect("the folder"));
    let _running = started(&dir);
    fs::write(dir.with_extension("ready"), "").expect("said");
    sleep(Duration::from_secs(120));
}

fn other_process(dir: &Path) -> Child {
    let part = part("adoption::part_that_starts_a_server_and_hangs")
        .env(DIR, dir)
        .stdout(Stdio::null())
        .spawn()
        .expect("another process");
    wait_for("the other process's server", || dir.with_extension("ready").exists());
    part
}

fn postmaster_of(dir: &Path) -> u32 {
    let text = fs::read_to_string(dir.join("pgdata/postmaster.pid")).expect("a pid file");
    let pid = text.lines().next().and_then(|line| line.parse().ok());
    pid.expect("a pid")
}

#[test]
fn a_server_that_outlived_its_starter_is_adopted_and_stopped_at_the_end() {
    let folder = Folder::new("data");
    let mut other = other_process(&folder.0);
    let pid = postmaster_of(&folder.0);
    match open(&folder.0) {
        Err(Error::InUse { holder, .. }) => assert_eq!(holder, format!("process {}", other.id())),
        unexpected => panic!("{unexpected:?}"),
    }
    other.kill().expect("SIGKILL");
    other.wait().expect("collected");

    let mut running = started(&folder.0);
    assert!(running.adopted());
    assert_eq!(running.pid(), Some(pid));
    assert_eq!(query(&running, "SELECT 1"), "1");
    running.stop(Mode::Fast).expect("it stops, though it is not our child");
    assert!(!folder.0.join("pgdata/postmaster.pid").exists());
    running.restart(&quiet).expect("it starts");
    assert!(!running.adopted());
}

#[test]
fn an_adopted_server_moves_to_the_port_that_is_asked_for() {
    let folder = Folder::new("data");
    let mut other = other_process(&folder.0);
    other.kill().expect("SIGKILL");
    other.wait().expect("collected");
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its number").port();
    drop(free);
    let options = Options { port, ..careless() };
    let cluster = Cluster::open(binaries(), &folder.0, options, &quiet).expect("it opens");
    let running = cluster.start(&quiet).expect("it starts");
    assert_eq!(running.port(), port);
    assert_eq!(query(&running, "SHOW port"), port.to_string());
}

#[test]
fn a_pid_file_whose_number_belongs_to_a_stranger_is_not_believed() {
    let folder = Folder::new("data");
    let mut running = started(&folder.0);
    query(&running, "CREATE TABLE t (v text); INSERT INTO t VALUES ('kept')");
    let pid_file = folder.0.join("pgdata/postmaster.pid");
    let text = fs::read_to_string(&pid_file).expect("a pid file");
    running.kill().expect("killed");
    // A living process of the same user: PostgreSQL alone would refuse to start beside it.
    let mut stranger = stranger(&folder.0);
    let (_, rest) = text.split_once('\n').expect("lines");
    fs::write(&pid_file, format!("{}\n{rest}", stranger.id())).expect("written");

    running.restart(&quiet).expect("it starts");
    assert!(!running.adopted());
    assert_eq!(query(&running, "SELECT v FROM t"), "kept");
    assert!(matches!(stranger.try_wait(), Ok(None)), "the stranger is unharmed");
    let _ = stranger.kill();
    let _ = stranger.wait();
}

/// Sleeps as the user who owns the data, in a folder that is not the data's.
fn stranger(dir: &Path) -> Child {
    use std::os::unix::fs::MetadataExt;
    use std::os::unix::process::CommandExt;
    let owner = fs::metadata(dir.join("pgdata")).expect("data");
    let mut sleep = Command::new("sleep");
    sleep.arg("60").current_dir("/");
    if fs::metadata("/proc/self").expect("ourselves").uid() == 0 {
        sleep.uid(owner.uid()).gid(owner.gid());
    }
    sleep.spawn().expect("a stranger")
}
