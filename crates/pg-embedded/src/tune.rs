//! Settings for this machine, each with its reason, in a file of our own that `postgresql.conf`
//! includes. What an administrator sets with ALTER SYSTEM wins over it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::binaries::Binaries;
use crate::cluster::Options;
use crate::command::{run, server_program};
use crate::error::{Error, Result};
use crate::user::User;

const FILE: &str = "counterfoil.conf";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What the settings depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Machine {
    memory: u64,
    disk_free: u64,
    lz4: bool,
}

impl Machine {
    pub fn look(binaries: &Binaries, user: &User, pgdata: &Path) -> Self {
        Self {
            memory: memory(),
            disk_free: rustix::fs::statvfs(pgdata).map_or(10 * GIB, |s| s.f_bavail.saturating_mul(s.f_frsize)),
            lz4: has_lz4(binaries, user, pgdata),
        }
    }
}

/// Where the server listens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listen<'a> {
    pub port: u16,
    pub socket_dir: &'a Path,
    pub log_dir: &'a Path,
}

struct Setting {
    why: &'static str,
    name: String,
    value: String,
}

/// Adds the include line to a cluster just made. Whatever the administrator writes below it wins.
pub(crate) fn include(pgdata: &Path, user: &User) -> Result<()> {
    let path = pgdata.join("postgresql.conf");
    OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| {
            // "if exists": PostgreSQL asks questions of its own before the first start writes it.
            writeln!(file, "\n# Rewritten at every start by Counterfoil.")?;
            writeln!(file, "include_if_exists = '{FILE}'")?;
            file.sync_all()
        })
        .map_err(Error::io("write", &path))?;
    user.give(&path)
}

/// Writes the file anew, for this start.
pub(crate) fn write(pgdata: &Path, user: &User, machine: Machine, listen: Listen<'_>, options: &Options) -> Result<()> {
    let mut text = String::from(
        "# Rewritten at every start: do not edit. ALTER SYSTEM, or a line below the include\n\
         # in postgresql.conf, wins over what is here.\n",
    );
    for setting in settings(machine, listen, options) {
        let (name, value) = (setting.name, quoted(&setting.value));
        text += &format!("\n# {}\n{name} = {value}\n", setting.why);
    }
    let (path, fresh) = (pgdata.join(FILE), pgdata.join("counterfoil.conf.new"));
    let _ = fs::remove_file(&fresh);
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })
        .map_err(Error::io("write", &fresh))?;
    user.give(&fresh)?;
    fs::rename(&fresh, &path).map_err(Error::io("write", &path))
}

fn settings(machine: Machine, listen: Listen<'_>, options: &Options) -> Vec<Setting> {
    let mut list = Vec::new();
    let mut set = |name: &str, value: String, why| {
        list.push(Setting {
            why,
            name: name.to_owned(),
            value,
        });
    };
    connections(listen, &mut set);
    memory_and_wal(machine, &mut set);
    logging(listen, &mut set);
    if !options.durable {
        // Commits still reach the kernel, so that even here a killed server loses none.
        let why = "This cluster is thrown away by the test that made it.";
        for name in ["fsync", "full_page_writes"] {
            set(name, "off".to_owned(), why);
        }
    }
    for (name, value) in &options.settings {
        set(name, value.clone(), "Asked for by whoever started this cluster.");
    }
    list
}

fn connections(listen: Listen<'_>, set: &mut impl FnMut(&str, String, &'static str)) {
    set("listen_addresses", "127.0.0.1".into(), "Nobody but this machine.");
    set(
        "port",
        listen.port.to_string(),
        "Chosen at start, unless it was asked for.",
    );
    // The value is a list: inner quotes keep a comma in a path from ending an item.
    let folder = listen.socket_dir.to_string_lossy().replace('"', "\"\"");
    set(
        "unix_socket_directories",
        format!("\"{folder}\""),
        "A folder that only the server and its starter can enter.",
    );
    set(
        "max_connections",
        "100".into(),
        "Lanes need one connection each and readers come from a pool; more backends than that\n\
         # would only take turns on the cores.",
    );
    set(
        "max_prepared_transactions",
        "0".into(),
        "A transaction that was prepared and forgotten holds its locks, and vacuum, for ever.",
    );
    set(
        "timezone",
        "UTC".into(),
        "Times look the same wherever the machine stands.",
    );
    set(
        "jit",
        "off".into(),
        "Our statements run for less time than it takes to compile one.",
    );
}

fn memory_and_wal(machine: Machine, set: &mut impl FnMut(&str, String, &'static str)) {
    let megabytes = |bytes: u64| format!("{}MB", bytes / MIB);
    let memory = machine.memory;
    set(
        "shared_buffers",
        megabytes((memory / 4).clamp(128 * MIB, 8 * GIB)),
        "A quarter of the memory: the system's cache and the server beside us want the rest.",
    );
    set(
        "effective_cache_size",
        megabytes((memory / 2).max(256 * MIB)),
        "What the planner may hope to find cached; it allocates nothing.",
    );
    set(
        "maintenance_work_mem",
        megabytes((memory / 16).clamp(64 * MIB, GIB)),
        "For index builds and vacuum, of which a few run at a time.",
    );
    set(
        "random_page_cost",
        "1.1".into(),
        "The disk is taken to be solid state, where a page costs the same wherever it lies.",
    );
    let wal = (machine.disk_free / 10).clamp(GIB, 4 * GIB);
    set(
        "max_wal_size",
        megabytes(wal),
        "Each checkpoint makes every page be logged whole once more, so they should be rare; but\n\
         # a crash replays up to this much, and a tenth of the free disk is enough to take.",
    );
    set(
        "min_wal_size",
        megabytes(wal / 4),
        "Segments kept for reuse: filling an old one is cheaper than making a new one.",
    );
    set(
        "checkpoint_timeout",
        "15min".into(),
        "With the size above as the bound, time need not force them often.",
    );
    set(
        "wal_compression",
        if machine.lz4 { "lz4" } else { "off" }.into(),
        "Whole pages shrink to a fraction at next to no cost with lz4; the other method costs\n\
         # more processor than the disk saves, so where lz4 is not built in it stays off.",
    );
}

fn logging(listen: Listen<'_>, set: &mut impl FnMut(&str, String, &'static str)) {
    set(
        "logging_collector",
        "on".into(),
        "So that the log can be rotated; its first words, before this, are in startup.log.",
    );
    set(
        "log_directory",
        listen.log_dir.to_string_lossy().into_owned(),
        "Beside the data and not in it, so that copies of the data leave the log out.",
    );
    let week = "One file for each day of the week, begun anew a week later: the log stays bounded.";
    set("log_filename", "postgresql-%a.log".into(), week);
    set("log_truncate_on_rotation", "on".into(), week);
    set("log_rotation_age", "1d".into(), week);
    set("log_rotation_size", "0".into(), week);
    set("log_timezone", "UTC".into(), "As in the log of the server beside us.");
    set(
        "log_line_prefix",
        "%m [%p] %q%u@%d %a ".into(),
        "Who, where, and from which part of Counterfoil.",
    );
    set(
        "log_lock_waits",
        "on".into(),
        "Somebody who waits for a second on a lock is worth a line.",
    );
    set("lc_messages", "C".into(), "We read reasons out of the log, in English.");
}

/// A value in the syntax of `postgresql.conf`.
fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "''"))
}

fn has_lz4(binaries: &Binaries, user: &User, pgdata: &Path) -> bool {
    let mut ask = server_program(&binaries.program("postgres"), user);
    ask.arg("-D")
        .arg(pgdata)
        .args(["-c", "wal_compression=lz4", "-C", "wal_compression"]);
    let answer = run(&mut ask, Duration::from_secs(30));
    matches!(answer, Ok(Some(output)) if output.status.success())
}

/// The memory we may use: the machine's, or a container's share of it.
fn memory() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total_of(&text))
        .unwrap_or(GIB);
    // cgroup version 2, then 1, as a container sees itself. "max" is no number.
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse().ok())
    .fold(machine, u64::min)
}

fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(machine: Machine, options: &Options, name: &str) -> Option<String> {
        let listen = Listen {
            port: 1,
            socket_dir: Path::new("/a,\"b"),
            log_dir: Path::new("/l"),
        };
        let list = settings(machine, listen, options);
        let last = list.iter().rfind(|s| s.name == name);
        last.map(|s| s.value.clone())
    }

    fn machine(memory: u64, disk_free: u64) -> Machine {
        Machine {
            memory,
            disk_free,
            lz4: true,
        }
    }

    #[test]
    fn small_and_huge_machines_stay_within_bounds() {
        let options = Options::default();
        let small = machine(256 * MIB, GIB);
        assert_eq!(value(small, &options, "shared_buffers").unwrap(), "128MB");
        assert_eq!(value(small, &options, "max_wal_size").unwrap(), "1024MB");
        let huge = machine(512 * GIB, 9000 * GIB);
        assert_eq!(value(huge, &options, "shared_buffers").unwrap(), "8192MB");
        assert_eq!(value(huge, &options, "max_wal_size").unwrap(), "4096MB");
    }

    #[test]
    fn fsync_is_never_mentioned_unless_a_test_gave_durability_up() {
        let some = machine(GIB, GIB);
        assert_eq!(value(some, &Options::default(), "fsync"), None);
        let careless = Options {
            durable: false,
            ..Options::default()
        };
        assert_eq!(value(some, &careless, "fsync").unwrap(), "off");
    }

    #[test]
    fn the_callers_settings_come_last() {
        let options = Options {
            settings: vec![("max_connections".into(), "7".into())],
            ..Options::default()
        };
        let seen = value(machine(GIB, GIB), &options, "max_connections");
        assert_eq!(seen.unwrap(), "7");
    }

    #[test]
    fn odd_characters_survive_both_kinds_of_quotes() {
        assert_eq!(quoted(r"it's a \"), r"'it''s a \\'");
        let folder = value(machine(GIB, GIB), &Options::default(), "unix_socket_directories");
        assert_eq!(folder.unwrap(), r#""/a,""b""#);
    }

    #[test]
    fn memory_is_read_from_meminfo() {
        let text = "MemTotal:       24689764 kB\nMemFree: 1 kB\n";
        assert_eq!(total_of(text), Some(24_689_764 * 1024));
        assert_eq!(total_of("nonsense"), None);
    }
}
