//! The program itself: child processes on a database of their own, over real sockets.
//!
//! Nothing here reaches into the program. What a process is told, it is told by arguments, files of
//! its data folder and signals; what it says, it says over HTTP, on stdout and by its exit status.
//! The superuser looks from outside.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use counterfoil_pg::TenantId;
use counterfoil_test::{FaultProxy, PASSWORD, Server, TestDatabase, database};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::client::Client;

const BINARY: &str = env!("CARGO_BIN_EXE_counterfoil");

/// For everything that is waited for and that nobody measures: a loaded machine may take its time,
/// and what hangs must still end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A data folder. When it goes, so does a PostgreSQL that was left at work in it.
#[derive(Debug)]
pub struct Home {
    pub dir: PathBuf,
    /// Who runs the program, where that is not whoever runs the tests.
    plain: Option<PlainUser>,
}

/// Somebody without rights, with a home folder and a copy of the program that they can reach.
#[derive(Debug)]
struct PlainUser {
    home: PathBuf,
    uid: u32,
    gid: u32,
}

impl PlainUser {
    fn program(&self) -> PathBuf {
        self.home.join("counterfoil")
    }
}

/// What a command that ends by itself came to.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

fn new_folder() -> PathBuf {
    let dir = PathBuf::from(format!(
        "/tmp/cf-e2e-{}-{:08x}",
        std::process::id(),
        rand::random::<u32>()
    ));
    fs::create_dir(&dir).expect("a new folder");
    dir
}

impl Home {
    /// An empty one. In /tmp, which the user of PostgreSQL can enter.
    pub fn new() -> Arc<Self> {
        let dir = new_folder();
        Arc::new(Self { dir, plain: None })
    }

    /// Where the data of a user who is not root lies by default. As root, of the user `nobody`.
    pub fn unprivileged() -> Arc<Self> {
        let home = new_folder();
        let dir = home.join(".local/share/counterfoil");
        fs::create_dir_all(&dir).expect("a new folder");
        let ids = if rustix::process::geteuid().is_root() {
            let users = fs::read_to_string("/etc/passwd").expect("the users");
            let line = users.lines().find(|line| line.starts_with("nobody:")).expect("nobody");
            let number = |n| {
                line.split(':')
                    .nth(n)
                    .and_then(|text| text.parse().ok())
                    .expect("a number")
            };
            (number(2), number(3))
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let plain = PlainUser {
            home,
            uid: ids.0,
            gid: ids.1,
        };
        // The one of the checkout may lie below root's home.
        fs::copy(BINARY, plain.program()).expect("a copy");
        for path in dir.ancestors().take(4) {
            std::os::unix::fs::chown(path, Some(plain.uid), Some(plain.gid)).expect("given away");
        }
        Arc::new(Self {
            dir,
            plain: Some(plain),
        })
    }

    /// As `init` leaves it for the database at this place.
    pub fn prepared(host: &str, port: u16, dbname: &str, password: &str) -> Arc<Self> {
        let home = Self::new();
        let place = format!("[database]\nhost = {host:?}\nport = {port}\ndbname = {dbname:?}\n\n");
        home.write_roles(&place, password);
        home
    }

    /// Roles are rows of the whole cluster, which other tests use at the same time: whoever sets
    /// their passwords must set the same ones.
    pub fn write_roles(&self, place: &str, password: &str) {
        let passwords: String = ["owner", "app", "lane", "ops", "report"]
            .map(|role| format!("{role} = {password:?}\n"))
            .concat();
        let text = format!("{place}[passwords]\n{passwords}");
        let mut file = fs::OpenOptions::new();
        let mut file = file
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(self.dir.join("roles.toml"))
            .unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// The program with these arguments on this folder, and with no settings but these.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.plain {
            None => Command::new(BINARY),
            Some(plain) => {
                let mut command = Command::new(plain.program());
                command
                    .env("HOME", &plain.home)
                    .env_remove("XDG_DATA_HOME")
                    .current_dir("/");
                if rustix::process::geteuid().is_root() {
                    command.uid(plain.uid).gid(plain.gid);
                }
                command
            }
        };
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("COUNTERFOIL_") && !name.starts_with("COUNTERFOIL_TEST_") {
                command.env_remove(&*name);
            }
        }
        command.args(args).kill_on_drop(true).stdin(Stdio::null());
        if self.plain.is_none() {
            command.arg("--data").arg(&self.dir);
        }
        command
    }

    /// Runs a command to its end.
    pub async fn run(&self, args: &[&str]) -> Ended {
        let output = timeout(PATIENCE, self.command(args).output()).await;
        let output = output.unwrap_or_else(|_| panic!("{args:?} does not end")).unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs a command that must succeed, and gives what it wrote to stdout.
    pub async fn ok(&self, args: &[&str]) -> String {
        let ended = self.run(args).await;
        assert_eq!(ended.code, Some(0), "{args:?}: {ended:?}");
        ended.stdout
    }

    pub fn operator_key(&self) -> String {
        fs::read_to_string(self.dir.join("operator.key"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// The process of the PostgreSQL that was brought along, while its pid file is there.
    pub fn postmaster(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.dir.join("pg/pgdata/postmaster.pid")).ok()?;
        Pid::from_raw(text.lines().next()?.trim().parse().ok()?)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Some(pid) = self.postmaster() {
            let _ = kill_process(pid, Signal::QUIT);
        }
        let all = self.plain.as_ref().map_or(&self.dir, |plain| &plain.home);
        let _ = fs::remove_dir_all(all);
    }
}

impl Ended {
    /// It could not run: exit status 2, nothing on stdout, and one sentence with `says` in it. What
    /// caused it may follow, and progress may come before.
    #[track_caller]
    pub fn could_not_run(&self, says: &[&str]) {
        assert_eq!((self.code, self.stdout.as_str()), (Some(2), ""), "{self:?}");
        let sentences: Vec<_> = self
            .stderr
            .lines()
            .filter(|line| line.starts_with("counterfoil: "))
            .collect();
        assert_eq!(sentences.len(), 1, "{self:?}");
        for part in says {
            assert!(sentences[0].contains(part), "{part:?} is not in {self:?}");
        }
        assert!(
            !self.stderr.contains("panicked") && !self.stderr.contains(" ERROR "),
            "{self:?}"
        );
    }
}

/// `counterfoil up`.
pub struct Up {
    pub address: SocketAddr,
    pub home: Arc<Home>,
    pub pid: u32,
    child: Child,
    /// Kept open: who prints into a closed pipe gets an error.
    _stdout: Lines<BufReader<ChildStdout>>,
    log: PathBuf,
}

impl Up {
    /// Starts it, and waits until it says where it listens.
    pub async fn start(home: &Arc<Home>, args: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let log = home
            .dir
            .join(format!("up-{}.log", NEXT.fetch_add(1, Ordering::Relaxed)));
        let args = [&["up", "--listen", "127.0.0.1:0"], args].concat();
        let mut command = home.command(&args);
        command.stdout(Stdio::piped()).stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = timeout(PATIENCE, lines.next_line()).await.ok().and_then(Result::unwrap);
        let address = first
            .as_deref()
            .and_then(|line| line.strip_prefix("counterfoil listens on http://"));
        let Some(address) = address else {
            panic!(
                "up {args:?} said {first:?}, and:\n{}",
                fs::read_to_string(&log).unwrap()
            );
        };
        let pid = child.id().expect("it runs");
        Self {
            address: address.parse().unwrap(),
            home: Arc::clone(home),
            pid,
            child,
            _stdout: lines,
            log,
        }
    }

    /// A caller with this key.
    pub fn client(&self, tenant: TenantId, key: &str) -> Client {
        Client::new(self.address, tenant, key)
    }

    /// SIGKILL, and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// SIGKILL without waiting: for the middle of something.
    pub fn kill_now(&mut self) {
        self.child.start_kill().unwrap();
    }

    /// SIGINT, as of Ctrl-C.
    pub fn interrupt(&self) {
        kill_process(Pid::from_raw(self.pid.cast_signed()).unwrap(), Signal::INT).unwrap();
    }

    /// Waits until it has ended, and gives its exit status and what it logged.
    pub async fn ended(&mut self) -> (Option<i32>, String) {
        let status = timeout(PATIENCE, self.child.wait()).await.expect("it ends").unwrap();
        (status.code(), self.log())
    }

    /// SIGINT, and a clean end.
    pub async fn stop(mut self) {
        self.interrupt();
        let (code, log) = self.ended().await;
        assert_eq!(code, Some(0), "{log}");
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Bytes of memory at their most.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // Shown with the output of a test that fails.
        let tail = |text: &str| {
            text.lines()
                .rev()
                .take(30)
                .map(|line| format!("  {line}\n"))
                .collect::<Vec<_>>()
        };
        if std::thread::panicking() {
            let lines: String = tail(&self.log()).into_iter().rev().collect();
            println!("--- the end of what server {} logged\n{lines}", self.pid);
        }
    }
}

/// A database of a test's own with a tenant and an operator, and processes on it.
pub struct House {
    pub test: TestDatabase,
    pub tenant: TenantId,
    pub operator: String,
    /// For commands; each server has a data folder of its own.
    pub home: Arc<Home>,
    pub admin: counterfoil_pg::Client,
}

impl House {
    pub async fn new(server: Server) -> Self {
        let test = database(server).await;
        let tenant = test.tenant("one").await;
        let operator = test.operator_key().await.token().to_owned();
        let (host, port, name) = (test.settings.host.as_str(), test.settings.port, test.name.as_str());
        let home = Home::prepared(host, port, name, PASSWORD);
        Self {
            tenant,
            operator,
            home,
            admin: test.admin().await,
            test,
        }
    }

    /// A fresh data folder that leads to the database.
    pub fn another_home(&self) -> Arc<Home> {
        Home::prepared(
            &self.test.settings.host,
            self.test.settings.port,
            &self.test.name,
            PASSWORD,
        )
    }

    /// A data folder whose way to the database leads through a proxy.
    pub fn home_behind(&self, proxy: &FaultProxy) -> Arc<Home> {
        Home::prepared("127.0.0.1", proxy.port(), &self.test.name, PASSWORD)
    }

    pub async fn up(&self) -> Up {
        Up::start(&self.another_home(), &[]).await
    }

    /// Two servers that know nothing of each other.
    pub async fn two(&self) -> [Up; 2] {
        [self.up().await, self.up().await]
    }

    /// The operator, at the first tenant.
    pub fn client(&self, up: &Up) -> Client {
        up.client(self.tenant, &self.operator)
    }

    /// A tenant with a key of its own.
    pub async fn another_tenant(&self, name: &str) -> (TenantId, String) {
        let tenant = self.test.tenant(name).await;
        (tenant, self.test.tenant_key(tenant).await.token().to_owned())
    }

    /// A number that the superuser sees.
    #[allow(clippy::disallowed_methods, reason = "a look from outside")]
    pub async fn number(&self, sql: &str) -> i64 {
        self.admin
            .query_one(sql, &[])
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
            .get(0)
    }

    /// What the superuser does.
    #[allow(clippy::disallowed_methods, reason = "from outside")]
    pub async fn sql(&self, sql: &str) {
        self.admin
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    pub async fn stubs(&self) -> i64 {
        self.number("SELECT count(*) FROM counterfoil.stub").await
    }

    pub async fn transfers(&self) -> i64 {
        self.number("SELECT count(*) FROM counterfoil.ledger_transfer").await
    }

    pub async fn entries(&self) -> i64 {
        self.number("SELECT count(*) FROM counterfoil.ledger_entry").await
    }

    /// `counterfoil check` finds nothing.
    pub async fn check(&self) {
        let ended = self.home.run(&["check"]).await;
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    }
}

/// A key nobody has used.
pub fn fresh() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("fresh-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn intent(key: &str, kind: &str, body: &Value) -> Value {
    json!({ "key": key, "kind": kind, "body": body })
}

pub fn transfer(key: &str, from: &str, to: &str, amount: &str) -> Value {
    intent(
        key,
        "ledger.transfer",
        &json!({ "from": from, "to": to, "amount": amount }),
    )
}

/// USD of two decimals, an account `bank` without limits and these, whose floor is zero.
pub async fn open_books(client: &mut Client, accounts: &[&str]) {
    let mut intents = vec![
        intent(&fresh(), "ledger.asset", &json!({ "code": "USD", "scale": 2 })),
        intent(&fresh(), "ledger.open", &json!({ "account": "bank", "asset": "USD" })),
    ];
    let floor = |account: &&str| json!({ "account": account, "asset": "USD", "floor": "0" });
    intents.extend(
        accounts
            .iter()
            .map(|account| intent(&fresh(), "ledger.open", &floor(account))),
    );
    for item in client.post("/intents", &Value::Array(intents)).await.items() {
        assert_eq!(item["status"], 201, "{item}");
    }
}

/// Brings money from the bank.
pub async fn fund(client: &mut Client, account: &str, amount: &str) {
    let body = json!({ "key": fresh(), "from": "bank", "to": account, "amount": amount });
    assert_eq!(client.post("/transfers", &body).await.status, 201);
}

/// Asks until it is so.
pub async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let start = Instant::now();
    while !ask().await {
        assert!(start.elapsed() < PATIENCE, "it never came to be that {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Where the files of `data/` are.
pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

/// So that every failure can be had again.
pub fn seed() -> u64 {
    let seed = std::env::var("COUNTERFOIL_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("COUNTERFOIL_TEST_SEED={seed}");
    seed
}
