//! What is refused, each with one sentence that says what to do.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use counterfoil_pg_embedded::{Binaries, Cluster, Error, Options};

use crate::desk::{Folder, binaries, careless, open, quiet, started};

/// One sentence: no line breaks, no full stop inside, and a way out after a colon.
fn sentence(error: &Error, wanted: &[&str]) {
    let text = error.to_string();
    assert!(!text.contains('\n') && !text.contains(". "), "{text}");
    assert!(text.contains(": "), "no way out: {text}");
    for part in wanted {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
}

#[test]
fn data_of_another_major_version() {
    let folder = Folder::new("data");
    drop(open(&folder.0).expect("made"));
    fs::write(folder.0.join("pgdata/PG_VERSION"), "14\n").expect("written");
    let error = open(&folder.0).expect_err("refused");
    assert!(matches!(error, Error::OtherVersion { data: 14, .. }), "{error:?}");
    sentence(&error, &["PostgreSQL 14", "--pg-bin"]);
    fs::write(folder.0.join("pgdata/PG_VERSION"), "?").expect("written");
    let error = open(&folder.0).expect_err("refused");
    assert!(matches!(error, Error::Damaged(_)), "{error:?}");
}

#[test]
fn a_port_that_is_taken() {
    let folder = Folder::new("data");
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = holder.local_addr().expect("its number").port();
    let options = Options { port, ..careless() };
    let cluster = Cluster::open(binaries(), &folder.0, options, &quiet).expect("it opens");
    let error = cluster.start(&quiet).expect_err("refused");
    assert!(matches!(error, Error::PortTaken(p) if p == port), "{error:?}");
    sentence(&error, &[&port.to_string()]);
}

#[test]
fn two_on_one_data_directory() {
    let folder = Folder::new("data");
    let _first = started(&folder.0);
    let error = open(&folder.0).expect_err("refused");
    sentence(&error, &["another process", &std::process::id().to_string()]);
    // Nor by another name.
    let link = folder.0.with_file_name("link");
    std::os::unix::fs::symlink(&folder.0, &link).expect("a link");
    let error = open(&link).expect_err("refused");
    assert!(matches!(error, Error::InUse { .. }), "{error:?}");
}

#[test]
fn a_folder_with_other_things_in_it() {
    let folder = Folder::new("data");
    fs::write(folder.0.join("thesis.tex"), "years of work").expect("written");
    let error = open(&folder.0).expect_err("refused");
    assert!(matches!(error, Error::Foreign(_)), "{error:?}");
    sentence(&error, &["not empty"]);
    fs::write(folder.0.join("PG_VERSION"), "15\n").expect("written");
    let error = open(&folder.0).expect_err("refused");
    assert!(matches!(error, Error::ForeignCluster(_)), "{error:?}");
    sentence(&error, &["--database-url"]);
    let left = fs::read_dir(&folder.0).expect("read").count();
    assert_eq!(left, 2, "nothing was added to a folder that is not ours");
}

#[test]
fn a_folder_below_one_that_the_servers_user_cannot_enter() {
    let folder = Folder::new("home");
    if !is_root() {
        // Whoever is not root runs the server as themselves.
        return;
    }
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o700)).expect("shut");
    let error = open(&folder.0.join("data")).expect_err("refused");
    match &error {
        Error::CannotEnter { blocked, .. } => assert_eq!(blocked, &folder.0),
        unexpected => panic!("{unexpected:?}"),
    }
    sentence(&error, &["chmod o+x", "/var/lib"]);
    let error = Binaries::find(Some(&folder.0)).expect_err("refused");
    assert!(matches!(error, Error::NotBinaries(_)), "{error:?}");
}

#[test]
fn a_lost_password() {
    let folder = Folder::new("data");
    drop(open(&folder.0).expect("made"));
    fs::remove_file(folder.0.join("password")).expect("removed");
    let error = open(&folder.0).expect_err("refused");
    assert!(matches!(error, Error::PasswordGone(_)), "{error:?}");
    sentence(&error, &["backup"]);
}

#[test]
fn a_folder_without_postgresql_in_it() {
    for dir in ["/usr/share", "/nowhere"] {
        let error = Binaries::find(Some(Path::new(dir))).expect_err("refused");
        sentence(&error, &[dir, "--pg-bin"]);
    }
}

#[test]
fn a_server_that_dies_at_its_start_says_why() {
    let folder = Folder::new("data");
    let mut options = careless();
    options.settings.push(("shared_buffers".into(), "100000GB".into()));
    let cluster = Cluster::open(binaries(), &folder.0, options, &quiet).expect("it opens");
    let error = cluster.start(&quiet).expect_err("refused");
    sentence(&error, &["the start of PostgreSQL failed", "log says more"]);

    fs::remove_file(folder.0.join("pgdata/global/pg_control")).expect("removed");
    let error = open(&folder.0).expect("it opens").start(&quiet).expect_err("refused");
    sentence(&error, &["pg_control"]);
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").expect("ourselves").uid() == 0
}
