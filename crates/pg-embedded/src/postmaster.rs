//! Is a server at work in a data directory? Judged by its processes, not by its pid file.

use std::fs;
use std::path::{Path, PathBuf};

/// What `postmaster.pid` says, in the order of its lines: pid, data directory, start time, port,
/// socket folder, listen address, shared memory key, state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PidFile {
    pub pid: u32,
    pub port: Option<u16>,
    pub socket_dir: Option<PathBuf>,
    pub ready: bool,
}

impl PidFile {
    pub fn path(pgdata: &Path) -> PathBuf {
        pgdata.join("postmaster.pid")
    }

    pub fn read(pgdata: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(Self::path(pgdata)).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().collect();
        let line = |at: usize| lines.get(at).copied().filter(|l| !l.is_empty());
        Some(Self {
            // Negative in single-user mode, which is nobody we could connect to.
            pid: line(0)?.trim().parse().ok()?,
            port: line(3).and_then(|l| l.trim().parse().ok()),
            socket_dir: line(4).map(PathBuf::from),
            ready: line(7).is_some_and(|l| l.trim() == "ready"),
        })
    }
}

/// Who works in a data directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Occupant {
    /// Nobody, whatever pid file may lie there.
    Nobody,
    /// A server, which may still be starting.
    Server(PidFile),
    /// Processes whose server was killed, or is in its last moment. A second server beside them
    /// would ruin the data.
    Orphans(Vec<u32>),
}

/// Every process of PostgreSQL has its data directory as working directory, and the kernel says so
/// for each. A pid file whose number now belongs to a stranger therefore convinces nobody here,
/// whereas PostgreSQL itself would refuse to start when that stranger has the same user.
pub(crate) fn occupant(pgdata: &Path) -> Occupant {
    let at_work = processes_in(pgdata);
    match PidFile::read(pgdata) {
        Some(file) if at_work.contains(&file.pid) => Occupant::Server(file),
        _ if at_work.is_empty() => Occupant::Nobody,
        _ => Occupant::Orphans(at_work),
    }
}

/// False as soon as the process has ended, even if nobody has collected it yet.
pub(crate) fn works_in(pid: u32, pgdata: &Path) -> bool {
    let process = Path::new("/proc").join(pid.to_string());
    // A shell that an administrator left standing in the folder is not a server.
    let named = |comm: &str| matches!(comm.trim_end(), "postgres" | "postmaster");
    fs::read_link(process.join("cwd")).is_ok_and(|cwd| cwd == pgdata)
        && fs::read_to_string(process.join("comm")).is_ok_and(|comm| named(&comm))
}

pub(crate) fn processes_in(pgdata: &Path) -> Vec<u32> {
    // The kernel names the folder without links.
    let Ok(pgdata) = fs::canonicalize(pgdata) else {
        return Vec::new();
    };
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| works_in(*pid, &pgdata))
        .collect()
}

/// Whether the path is an argument of some process, as the folder to be made is of initdb, which does
/// not work in it itself.
pub(crate) fn is_named(path: &Path) -> bool {
    let path = path.as_os_str().as_encoded_bytes();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    pids.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .any(|arguments| arguments.split(|byte| *byte == 0).any(|argument| argument == path))
}

#[cfg(test)]
mod tests {
    use super::PidFile;
    use std::path::PathBuf;

    #[test]
    fn a_pid_file_is_read_at_each_stage_of_its_life() {
        let early = PidFile::parse("77\n/data\n1764540000\n5433\n/run/x\n").expect("early");
        assert_eq!((early.pid, early.port, early.ready), (77, Some(5433), false));
        let text = "77\n/data\n1764540000\n5433\n/run/x\n127.0.0.1\n  1 2\nready   \n";
        let late = PidFile::parse(text).expect("late");
        assert_eq!(late.socket_dir, Some(PathBuf::from("/run/x")));
        assert!(late.ready);
        let stopping = PidFile::parse(&text.replace("ready   ", "stopping")).expect("stopping");
        assert!(!stopping.ready);
        assert_eq!(PidFile::parse("-5\n/data\n"), None);
        assert_eq!(PidFile::parse(""), None);
    }
}
