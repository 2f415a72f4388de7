//! Child processes: with a time limit, and for PostgreSQL's own programs with a known environment.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::user::User;

/// Between two looks at something that sends no event: another process's end, a file's content.
#[allow(
    clippy::disallowed_methods,
    reason = "this crate blocks by contract; its callers use spawn_blocking"
)]
pub(crate) fn pause() {
    thread::sleep(Duration::from_millis(20));
}

/// What a finished program left behind.
pub(crate) struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// The line that says most about a failure: the first that calls itself an error, or the last.
    pub fn reason(&self) -> String {
        let lines = || self.stderr.lines().map(str::trim).filter(|l| !l.is_empty());
        lines()
            .find(|line| {
                let line = line.to_ascii_lowercase();
                line.contains("error:") || line.contains("fatal:")
            })
            .or_else(|| lines().next_back())
            .map_or_else(|| self.status.to_string(), str::to_owned)
    }
}

/// A program of PostgreSQL's, run as `user`.
///
/// The environment is emptied: PGDATA, PGPORT or PGOPTIONS of whoever started us must not reach the
/// server, and messages must come in English for us to read them.
pub(crate) fn server_program(program: &Path, user: &User) -> Command {
    let mut command = Command::new(program);
    command.env_clear();
    for name in ["PATH", "LD_LIBRARY_PATH"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("LC_ALL", "C").env("TZ", "UTC");
    // Our own working directory may be one that `user` cannot enter.
    command.current_dir("/");
    if let Some((uid, gid)) = user.switch_to() {
        // The standard library also drops root's supplementary groups here.
        command.uid(uid).gid(gid);
    }
    command
}

/// A program found on PATH, or in the folders of system administration that `su` leaves out of it.
pub(crate) fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/local/sbin:/usr/sbin:/sbin"));
    command
}

/// Runs to the end, or kills it when `limit` has passed. `Ok(None)`: there is no such program, or
/// it may not be run.
pub(crate) fn run(command: &mut Command, limit: Duration) -> Result<Option<Output>> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return Ok(None);
    };
    // Read on threads: a program that fills one pipe while we wait on the other would hang.
    let stdout = child.stdout.take().map(|pipe| thread::spawn(|| drain(pipe)));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(|| drain(pipe)));
    let deadline = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => pause(),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(Error::TooSlow { what: name, limit });
            }
        }
    };
    let join = |thread: Option<thread::JoinHandle<String>>| thread.and_then(|t| t.join().ok()).unwrap_or_default();
    Ok(Some(Output {
        status,
        stdout: join(stdout),
        stderr: join(stderr),
    }))
}

fn drain(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}
