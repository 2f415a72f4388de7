//! The life of a cluster: made, started, stopped, crashed, found again.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use counterfoil_pg_embedded::{Binaries, Cluster, Mode, Options, Running};

use crate::desk::{Folder, binaries, careless, open, part, query, query_over_socket, quiet, started};

#[test]
fn data_is_found_again_after_a_stop() {
    let folder = Folder::new("data");
    let mut running = started(&folder.0);
    assert!(running.is_alive() && !running.adopted());
    query(&running, "CREATE TABLE t (v text); INSERT INTO t VALUES ('kept')");
    let password = running.password().to_owned();
    running.stop(Mode::Fast).expect("it stops");
    running.stop(Mode::Fast).expect("stopping twice is fine");
    assert!(!running.is_alive() && running.pid().is_none());
    drop(running);

    let again = started(&folder.0);
    assert_eq!(query(&again, "SELECT v FROM t"), "kept");
    assert_eq!(again.password(), password);
}

#[test]
fn what_was_committed_survives_a_crash() {
    let folder = Folder::new("data");
    let cluster = Cluster::open(binaries(), &folder.0, Options::default(), &quiet);
    let mut running = cluster.expect("it opens").start(&quiet).expect("it starts");
    for setting in ["fsync", "synchronous_commit", "full_page_writes", "data_checksums"] {
        assert_eq!(query(&running, &format!("SHOW {setting}")), "on", "{setting}");
    }
    query(&running, "CREATE TABLE t (v text); INSERT INTO t VALUES ('kept')");
    running.kill().expect("killed");
    running.restart(&quiet).expect("it recovers");
    assert_eq!(query(&running, "SELECT v FROM t"), "kept");
    running.stop(Mode::Immediate).expect("it stops");
    running.restart(&quiet).expect("it recovers again");
    assert_eq!(query(&running, "SELECT v FROM t"), "kept");
}

#[test]
fn it_runs_as_nobody_special_and_shuts_everyone_else_out() {
    let folder = Folder::new("data");
    let running = started(&folder.0);
    let owner = fs::metadata(folder.0.join("pgdata")).expect("data").uid();
    assert_ne!(owner, 0);
    let process = fs::metadata(format!("/proc/{}", running.pid().expect("a pid")));
    assert_eq!(process.expect("a process").uid(), owner);
    let mode = |name: &str| {
        let metadata = fs::metadata(folder.0.join(name)).expect(name);
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode("password"), mode("pgdata"), mode("run")), (0o600, 0o700, 0o700));
    assert_eq!(query(&running, "SHOW listen_addresses"), "127.0.0.1");
    let trusted = "SELECT count(*) FROM pg_hba_file_rules WHERE auth_method <> 'scram-sha-256'";
    assert_eq!(query(&running, trusted), "0");
}

#[test]
fn a_ctrl_c_at_our_terminal_does_not_reach_it() {
    let folder = Folder::new("data");
    let running = started(&folder.0);
    let pid = running.pid().expect("a pid");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("its state");
    let group = stat.rsplit(") ").next().and_then(|s| s.split(' ').nth(2));
    assert_eq!(group, Some(pid.to_string().as_str()), "a process group of its own");
}

#[test]
fn paths_with_spaces_quotes_and_dollars_work() {
    let folder = Folder::new(r#"it's "my, $HOME" \ data"#);
    let running = started(&folder.0);
    assert!(running.socket_dir().starts_with(&folder.0));
    over_the_socket(&running);
}

#[test]
fn a_path_too_long_for_a_socket_gets_a_short_folder_for_it() {
    let folder = Folder::new(&"long-".repeat(20));
    let mut running = started(&folder.0);
    let socket_dir = running.socket_dir().to_owned();
    assert!(socket_dir.starts_with("/tmp"));
    over_the_socket(&running);
    running.kill().expect("killed");
    running.restart(&quiet).expect("the same folder is used again");
    assert_eq!(running.socket_dir(), socket_dir);
    running.stop(Mode::Fast).expect("it stops");
    assert!(!socket_dir.exists(), "nothing is left in /tmp");
}

fn over_the_socket(running: &Running) {
    let local = query_over_socket(running, "SELECT inet_client_addr() IS NULL");
    assert_eq!(local, "t");
}

#[test]
fn a_half_made_cluster_is_made_anew() {
    let folder = Folder::new("data");
    drop(open(&folder.0).expect("made"));
    // As if we had been killed before the rename.
    fs::rename(folder.0.join("pgdata"), folder.0.join("pgdata.new")).expect("renamed");
    fs::remove_file(folder.0.join("pgdata.new/global/pg_control")).expect("removed");
    let running = started(&folder.0);
    assert_eq!(query(&running, "SELECT 1"), "1");
}

#[test]
fn a_folder_that_root_had_made_for_itself_alone_is_opened_far_enough() {
    let folder = Folder::new("data");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).expect("shut");
    drop(started(&folder.0));
}

#[test]
fn settings_of_the_caller_and_of_the_administrator_win() {
    let folder = Folder::new("data");
    let mut options = careless();
    options.settings.push(("max_connections".into(), "17".into()));
    let cluster = Cluster::open(binaries(), &folder.0, options, &quiet).expect("it opens");
    let mut running = cluster.start(&quiet).expect("it starts");
    assert_eq!(query(&running, "SHOW max_connections"), "17");
    let unapplied = "SELECT count(*) FROM pg_file_settings WHERE error IS NOT NULL";
    assert_eq!(query(&running, unapplied), "0");
    query(&running, "ALTER SYSTEM SET max_connections = 19");
    running.restart(&quiet).expect("it restarts");
    assert_eq!(query(&running, "SHOW max_connections"), "19");
}

#[test]
fn letters_beyond_ascii_are_letters_and_sort_by_their_bytes() {
    let folder = Folder::new("data");
    let running = started(&folder.0);
    assert_eq!(query(&running, "SELECT upper('é') || ('B' < 'a')"), "Étrue");
    assert_eq!(query(&running, "SHOW server_encoding"), "UTF8");
}

#[test]
fn the_newest_supported_version_runs_too() {
    let Some(bin) = std::env::var_os("COUNTERFOIL_TEST_PG18_BIN").map(PathBuf::from) else {
        return;
    };
    let binaries = Binaries::find(Some(&bin)).expect("18");
    assert_eq!(binaries.version.major, 18);
    let folder = Folder::new("data");
    let cluster = Cluster::open(binaries, &folder.0, careless(), &quiet).expect("it opens");
    let mut running = cluster.start(&quiet).expect("it starts");
    assert_eq!(query(&running, "SELECT upper('é')"), "É");
    running.kill().expect("killed");
    running.restart(&quiet).expect("it recovers");
}

/// Not a story but a part in one: prints the version chosen for a folder.
#[test]
#[ignore = "a part of other tests, run by them in a process of its own"]
fn part_that_chooses() {
    let dir = PathBuf::from(std::env::var_os("CF_PART_DIR").expect("the folder"));
    let chosen = Binaries::for_cluster(None, &dir, &quiet).expect("binaries");
    println!("CHOSEN {}", chosen.version.major);
}

#[test]
fn the_version_that_wrote_the_data_is_chosen_over_a_newer_one() {
    let bin = |name| std::env::var_os(name).map(PathBuf::from);
    let (Some(pg15), Some(pg18)) = (bin("COUNTERFOIL_TEST_PG15_BIN"), bin("COUNTERFOIL_TEST_PG18_BIN")) else {
        return;
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([pg15, pg18].into_iter().chain(std::env::split_paths(&path))).expect("a PATH");
    let folder = Folder::new("data");
    fs::create_dir(folder.0.join("pgdata")).expect("a folder");
    for major in ["15", "18"] {
        fs::write(folder.0.join("pgdata/PG_VERSION"), format!("{major}\n")).expect("written");
        let mut choosing = part("life::part_that_chooses");
        let output = choosing.env("PATH", &path).env("CF_PART_DIR", &folder.0).output();
        let words = String::from_utf8_lossy(&output.expect("it ran").stdout).into_owned();
        assert!(words.contains(&format!("CHOSEN {major}\n")), "{words}");
    }
}
