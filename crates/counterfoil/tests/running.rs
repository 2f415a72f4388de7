//! A server of a test's own, started as a user starts it.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use counterfoil_test::Server;
use rustix::process::{Pid, Signal, kill_process};

pub const BINARY: &str = env!("CARGO_BIN_EXE_counterfoil");

/// `crates/counterfoil/../..`
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .expect("a workspace")
}

/// A folder that goes away. In /tmp, where PostgreSQL's user may enter it.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(what: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cf-{what}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder in /tmp");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command that sees none of our own settings.
pub fn command(program: impl Into<OsString>) -> Command {
    let mut command = Command::new(program.into());
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("COUNTERFOIL_") || name_text.starts_with("XDG_") || name_text == "COLUMNS" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null());
    command
}

/// `counterfoil up`, on a free port, with a PostgreSQL of its own.
pub struct Up {
    child: Child,
    /// There is more to come; whoever writes into a pipe that nobody reads is ended.
    _stdout: BufReader<ChildStdout>,
    pub data: PathBuf,
    /// Host and port.
    pub address: String,
}

impl Up {
    pub fn start(data: &Path) -> Self {
        let mut child = command(BINARY)
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .arg("--pg-bin")
            .arg(Server::Pg18.bin_dir())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(data.with_extension("log")).expect("a log beside the data"))
            .spawn()
            .expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut first = String::new();
        stdout.read_line(&mut first).expect("its output");
        let Some(address) = first.trim_end().strip_prefix("counterfoil listens on http://") else {
            let log = fs::read_to_string(data.with_extension("log")).unwrap_or_default();
            panic!("`up` did not come up: {first:?}\n{log}");
        };
        Self {
            child,
            _stdout: stdout,
            data: data.to_owned(),
            address: address.to_owned(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Up {
    #[allow(clippy::disallowed_methods, reason = "no runtime here")]
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("a server did not stop within 30 s");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
