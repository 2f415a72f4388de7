//! A server at work in a cluster: started or adopted, stopped or killed.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};

use crate::binaries::{Version, children};
use crate::cluster::{Cluster, Options};
use crate::command::{pause, server_program};
use crate::error::{Error, Result};
use crate::package::hex;
use crate::postmaster::{Occupant, PidFile, occupant, processes_in, works_in};
use crate::{SUPERUSER, tune};

/// Children notice the death of their postmaster at once, unless they hang in the kernel.
const ORPHAN_LIMIT: Duration = Duration::from_secs(10);

/// The longest path of a Unix socket: `sun_path` less its closing zero.
const SOCKET_PATH_MAX: usize = 107;

/// How to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Open transactions are rolled back, everything is written; the next start is at once.
    Fast,
    /// As in a crash: the next start recovers.
    Immediate,
}

/// A server that takes connections. Dropping it stops it.
#[derive(Debug)]
pub struct Running {
    cluster: Cluster,
    server: Option<Server>,
    adopted: bool,
    port: u16,
    socket_dir: PathBuf,
}

#[derive(Debug)]
struct Server {
    pid: u32,
    port: u16,
    socket_dir: PathBuf,
    /// None where the server was adopted: it is not our child.
    child: Option<Child>,
}

impl Cluster {
    /// Starts the server and waits until it takes connections. One that is at work in this folder
    /// already, because whoever started it was killed, is adopted.
    pub fn start(self, progress: &dyn Fn(&str)) -> Result<Running> {
        let server = start(&self, progress)?;
        Ok(Running {
            cluster: self,
            adopted: server.child.is_none(),
            port: server.port,
            socket_dir: server.socket_dir.clone(),
            server: Some(server),
        })
    }
}

impl Running {
    /// The address for TCP. It is the only one the server listens on.
    pub fn host(&self) -> &'static str {
        "127.0.0.1"
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the Unix socket, as libpq's `host` takes it.
    pub fn socket_dir(&self) -> &Path {
        &self.socket_dir
    }

    pub fn user(&self) -> &'static str {
        SUPERUSER
    }

    pub fn password(&self) -> &str {
        self.cluster.password()
    }

    /// The superuser's connection string in libpq's form, without a database.
    pub fn conninfo(&self) -> String {
        format!(
            "host={} port={} user={SUPERUSER} password={}",
            self.host(),
            self.port,
            self.password()
        )
    }

    /// The postmaster's process id, while there is one.
    pub fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(|server| server.pid)
    }

    /// True where the server had been started by a process that is gone.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    pub fn version(&self) -> Version {
        self.cluster.version()
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// False once the postmaster has died, whoever stopped it.
    pub fn is_alive(&self) -> bool {
        self.server
            .as_ref()
            .is_some_and(|server| works_in(server.pid, &self.cluster.pgdata()))
    }

    /// Stops the server and waits until it is gone. Nothing happens where it is gone already.
    pub fn stop(&mut self, mode: Mode) -> Result<()> {
        let Some(server) = &mut self.server else {
            return Ok(());
        };
        let signal = match mode {
            Mode::Fast => Signal::INT,
            Mode::Immediate => Signal::QUIT,
        };
        server.end(signal, &self.cluster)?;
        self.server = None;
        self.forget_socket();
        Ok(())
    }

    /// Kills the postmaster with SIGKILL, for tests of what comes after.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut server) = self.server.take() {
            server.end(Signal::KILL, &self.cluster)?;
            wait_for_orphans(&self.cluster)?;
        }
        Ok(())
    }

    /// Stops the server where it runs, and starts it, on the same port: whoever knows its address finds it
    /// again. Where it had died, as a start after a crash.
    pub fn restart(&mut self, progress: &dyn Fn(&str)) -> Result<()> {
        self.stop(Mode::Fast)?;
        self.cluster.options.port = self.port;
        let server = start(&self.cluster, progress)?;
        self.adopted = server.child.is_none();
        self.port = server.port;
        self.socket_dir = server.socket_dir.clone();
        self.server = Some(server);
        Ok(())
    }

    /// Removes a socket folder that lies outside the cluster's.
    fn forget_socket(&self) {
        if !self.socket_dir.starts_with(&self.cluster.dir) {
            let _ = fs::remove_dir(&self.socket_dir);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop(Mode::Fast) {
            tracing::warn!(%error, "PostgreSQL was left running");
        }
    }
}

impl Server {
    fn end(&mut self, signal: Signal, cluster: &Cluster) -> Result<()> {
        let pgdata = cluster.pgdata();
        let deadline = Instant::now() + cluster.options.stop_limit;
        if !self.gone(&pgdata) {
            send(self.pid, signal);
        }
        while !self.gone(&pgdata) {
            if Instant::now() >= deadline {
                return Err(Error::StillRunning {
                    pid: self.pid,
                    limit: cluster.options.stop_limit,
                });
            }
            pause();
        }
        Ok(())
    }

    fn gone(&mut self, pgdata: &Path) -> bool {
        match &mut self.child {
            // Asking also collects it.
            Some(child) => !matches!(child.try_wait(), Ok(None)),
            None => !works_in(self.pid, pgdata),
        }
    }
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // Gone meanwhile is what we want anyway.
        let _ = kill_process(pid, signal);
    }
}

fn start(cluster: &Cluster, progress: &dyn Fn(&str)) -> Result<Server> {
    if let Some(server) = adopt(cluster, progress)? {
        return Ok(server);
    }
    clear_stale(cluster)?;
    let mut attempts = 3;
    loop {
        attempts -= 1;
        match launch(cluster, progress) {
            // Between picking a free port and listening on it, someone else may take it.
            Err(Error::PortTaken(_)) if cluster.options.port == 0 && attempts > 0 => {}
            done => return done,
        }
    }
}

/// Waits until the folder is either free or has a server that takes connections.
fn adopt(cluster: &Cluster, progress: &dyn Fn(&str)) -> Result<Option<Server>> {
    let Options { port, start_limit, .. } = cluster.options;
    let pgdata = cluster.pgdata();
    let deadline = Instant::now() + start_limit;
    loop {
        let file = match occupant(&pgdata) {
            Occupant::Nobody => return Ok(None),
            Occupant::Orphans(_) => {
                wait_for_orphans(cluster)?;
                continue;
            }
            Occupant::Server(file) => file,
        };
        if let (true, Some(its_port), Some(socket_dir)) = (file.ready, file.port, &file.socket_dir) {
            let mut server = Server {
                pid: file.pid,
                port: its_port,
                socket_dir: socket_dir.clone(),
                child: None,
            };
            if port == 0 || port == its_port {
                progress(&format!(
                    "taking over the PostgreSQL that is already running (process {})",
                    file.pid
                ));
                return Ok(Some(server));
            }
            progress(&format!("moving the running PostgreSQL from port {its_port} to {port}"));
            server.end(Signal::INT, cluster)?;
        } else if Instant::now() >= deadline {
            return Err(Error::TooSlow {
                what: "the start or stop of a PostgreSQL found running".to_owned(),
                limit: start_limit,
            });
        } else {
            pause();
        }
    }
}

fn wait_for_orphans(cluster: &Cluster) -> Result<()> {
    let deadline = Instant::now() + ORPHAN_LIMIT;
    loop {
        match occupant(&cluster.pgdata()) {
            Occupant::Orphans(pids) if Instant::now() >= deadline => {
                let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
                return Err(Error::Orphans {
                    dir: cluster.pgdata(),
                    pids: pids.join(", "),
                });
            }
            Occupant::Orphans(_) => pause(),
            Occupant::Nobody | Occupant::Server(_) => return Ok(()),
        }
    }
}

/// Removes what a killed server left: its pid file, which PostgreSQL would believe if a stranger of
/// the same user now has that number, and its sockets, for the same reason. Only reached when no
/// process works in the data directory.
fn clear_stale(cluster: &Cluster) -> Result<()> {
    // Where there is no /proc, nothing was proven: PostgreSQL shall judge for itself.
    if !Path::new("/proc/self/cwd").exists() || !processes_in(&cluster.pgdata()).is_empty() {
        return Ok(());
    }
    let pid_file = PidFile::path(&cluster.pgdata());
    let sockets = children(&socket_dir_of(cluster)).filter(|path| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".s.PGSQL."))
    });
    for path in sockets.chain([pid_file]) {
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &path)(e));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A free port, or the one asked for, if nobody has it.
fn choose_port(asked: u16) -> Result<u16> {
    match TcpListener::bind(("127.0.0.1", asked)).and_then(|socket| socket.local_addr()) {
        Ok(address) => Ok(address.port()),
        Err(_) => Err(Error::PortTaken(asked)),
    }
}

fn socket_dir_of(cluster: &Cluster) -> PathBuf {
    let inside = cluster.dir.join("run");
    let path = inside.as_os_str().len() + "/.s.PGSQL.65535".len();
    // PostgreSQL reads its configuration line by line.
    let one_line = !inside.as_os_str().as_encoded_bytes().iter().any(u8::is_ascii_control);
    if path <= SOCKET_PATH_MAX && one_line {
        return inside;
    }
    // Always the same for the same cluster, so that a killed one leaves no more than one behind.
    let name = hex(&Sha256::digest(cluster.dir.as_os_str().as_encoded_bytes())[..8]);
    Path::new("/tmp").join(format!("counterfoil-{name}"))
}

/// Makes a folder that the server's user owns, and root may enter as it may any.
fn make_private(cluster: &Cluster, dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return cluster.user.give(dir),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::io("create", dir)(e)),
    }
    // In /tmp anyone can have put anything there, a link included.
    let now = fs::symlink_metadata(dir).map_err(Error::io("look at", dir))?;
    let me = rustix::process::geteuid().as_raw();
    if !now.is_dir() || !(cluster.user.owns(&now) || now.uid() == me) {
        return Err(Error::SocketFolder(dir.to_owned()));
    }
    cluster.user.give(dir)
}

fn launch(cluster: &Cluster, progress: &dyn Fn(&str)) -> Result<Server> {
    let (pgdata, user, log_dir) = (cluster.pgdata(), &cluster.user, cluster.log_dir());
    let port = choose_port(cluster.options.port)?;
    let socket_dir = socket_dir_of(cluster);
    make_private(cluster, &socket_dir)?;
    make_private(cluster, &log_dir)?;
    let machine = tune::Machine::look(&cluster.binaries, user, &pgdata);
    let listen = tune::Listen {
        port,
        socket_dir: &socket_dir,
        log_dir: &log_dir,
    };
    tune::write(&pgdata, user, machine, listen, &cluster.options)?;

    let log = Log::mark(cluster);
    let startup = File::create(&log.startup).map_err(Error::io("write", &log.startup))?;
    let stderr = startup.try_clone().map_err(Error::io("write", &log.startup))?;
    progress(&format!("starting PostgreSQL {}", cluster.version()));
    let child = server_program(&cluster.binaries.program("postgres"), user)
        .arg("-D")
        .arg(&pgdata)
        .stdin(Stdio::null())
        .stdout(startup)
        .stderr(stderr)
        // A Ctrl-C at the terminal goes to our process group. The server must not get it: it has
        // to outlive us until we have landed what we accepted. (pg_ctl would do the same with
        // setsid, but hands paths to a shell and leaves us without a child to wait for.)
        .process_group(0)
        .spawn()
        .map_err(Error::io("run", &cluster.binaries.program("postgres")))?;
    let mut server = Server {
        pid: child.id(),
        port,
        socket_dir,
        child: Some(child),
    };
    match wait_until_ready(cluster, &mut server, &log, progress) {
        Ok(()) => Ok(server),
        Err(error) => {
            // Nothing has been promised to anyone yet, so the quickest way is good enough.
            let _ = server.end(Signal::QUIT, cluster);
            Err(error)
        }
    }
}

fn wait_until_ready(cluster: &Cluster, server: &mut Server, log: &Log, progress: &dyn Fn(&str)) -> Result<()> {
    let (pgdata, limit) = (cluster.pgdata(), cluster.options.start_limit);
    let started = Instant::now();
    let mut next_word = Duration::from_secs(5);
    loop {
        if server.gone(&pgdata) {
            let reason = log.reason();
            if reason.contains("could not create any TCP/IP sockets") {
                return Err(Error::PortTaken(server.port));
            }
            return Err(Error::Failed {
                what: "the start of PostgreSQL",
                reason,
                log: cluster.log_dir(),
            });
        }
        if PidFile::read(&pgdata).is_some_and(|file| file.pid == server.pid && file.ready) {
            return Ok(());
        }
        let waited = started.elapsed();
        if waited >= limit {
            let what = "the start of PostgreSQL".to_owned();
            return Err(Error::TooSlow { what, limit });
        }
        if waited >= next_word {
            progress("PostgreSQL is still starting; after a crash it replays its log first");
            next_word *= 2;
        }
        pause();
    }
}

/// The server's log from a moment on, across the files it may go to.
struct Log {
    startup: PathBuf,
    dir: PathBuf,
    sizes: HashMap<PathBuf, u64>,
}

impl Log {
    fn mark(cluster: &Cluster) -> Self {
        let dir = cluster.log_dir();
        let size = |path: PathBuf| fs::metadata(&path).ok().map(|m| (path, m.len()));
        Self {
            startup: cluster.dir.join("startup.log"),
            sizes: children(&dir).filter_map(size).collect(),
            dir,
        }
    }

    /// What the server gave as the reason for its end.
    fn reason(&self) -> String {
        let mut text = self.since(&self.startup);
        for file in children(&self.dir) {
            text += &self.since(&file);
        }
        let fatal = |line: &str| {
            let (_, reason) = line.split_once("FATAL:  ").or_else(|| line.split_once("PANIC:  "))?;
            Some(reason.to_owned())
        };
        text.lines()
            .filter_map(fatal)
            .next_back()
            .or_else(|| text.lines().next_back().map(str::to_owned))
            .unwrap_or_else(|| "it gave no reason".to_owned())
    }

    fn since(&self, file: &Path) -> String {
        let bytes = fs::read(file).unwrap_or_default();
        let from = self.sizes.get(file).map_or(0, |n| *n as usize);
        // Shorter than before: begun anew.
        let new = bytes.get(from..).unwrap_or(&bytes);
        String::from_utf8_lossy(new).into_owned()
    }
}
