//! The cluster folder: made once, checked at every opening, held by one process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::binaries::{Binaries, Version};
use crate::command::{Output, pause, run, server_program};
use crate::error::{Error, Result};
use crate::lock::Lock;
use crate::package::hex;
use crate::postmaster::{is_named, processes_in};
use crate::user::User;
use crate::{SUPERUSER, tune};

const LOCK: &str = "counterfoil.lock";
const PASSWORD: &str = "password";
const PGDATA: &str = "pgdata";

/// initdb takes a second or two; on a slow disk with a cold cache perhaps twenty.
const INITDB_LIMIT: Duration = Duration::from_secs(180);

/// How a cluster is run. The defaults are those of a server that keeps money.
#[derive(Debug, Clone)]
pub struct Options {
    /// TCP port on 127.0.0.1; 0 picks a free one at each start.
    pub port: u16,
    /// False turns fsync off, only for tests that throw their data away: a killed server still
    /// loses nothing, a machine that loses power may lose everything.
    pub durable: bool,
    /// Recovery after a crash belongs to the start, hence minutes.
    pub start_limit: Duration,
    /// A fast stop writes everything dirty back first.
    pub stop_limit: Duration,
    /// Settings of the caller's, written last, so that they win over ours.
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            port: 0,
            durable: true,
            start_limit: Duration::from_secs(300),
            stop_limit: Duration::from_secs(120),
            settings: Vec::new(),
        }
    }
}

/// A cluster folder that this process holds; no server need be running in it.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) binaries: Binaries,
    pub(crate) dir: PathBuf,
    pub(crate) user: User,
    pub(crate) options: Options,
    pub(crate) password: String,
    _lock: Lock,
}

/// The major version that wrote the data in a cluster folder, if there is data.
pub(crate) fn version_of_data(dir: &Path) -> Result<Option<u32>> {
    let file = dir.join(PGDATA).join("PG_VERSION");
    match fs::read_to_string(&file) {
        Ok(text) => match text.trim().parse() {
            Ok(major) => Ok(Some(major)),
            Err(_) => Err(Error::Damaged(dir.to_owned())),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("read", &file)(e)),
    }
}

impl Cluster {
    /// Takes hold of the cluster in `dir`, and makes it where the folder is empty or missing.
    pub fn open(binaries: Binaries, dir: &Path, options: Options, progress: &dyn Fn(&str)) -> Result<Self> {
        refuse_foreign(dir)?;
        make_dir(dir)?;
        // Without links from here on: /proc names working directories so.
        let dir = fs::canonicalize(dir).map_err(Error::io("find", dir))?;
        let lock = Lock::of_folder(&dir, LOCK)?;
        let user = User::for_data(&dir.join(PGDATA))?;
        user.can_enter(&dir)?;
        user.can_enter(&binaries.bin_dir)?;
        let password = match version_of_data(&dir)? {
            None => create(&binaries, &dir, &user, &options, progress)?,
            Some(major) if major == binaries.version.major => read_password(&dir)?,
            Some(data) => {
                let ours = binaries.version.to_string();
                return Err(Error::OtherVersion { dir, data, ours });
            }
        };
        Ok(Self {
            binaries,
            dir,
            user,
            options,
            password,
            _lock: lock,
        })
    }

    /// The folder, without symbolic links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn version(&self) -> Version {
        self.binaries.version
    }

    pub fn bin_dir(&self) -> &Path {
        &self.binaries.bin_dir
    }

    /// The superuser's password.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Where the server's log files are.
    pub fn log_dir(&self) -> PathBuf {
        self.dir.join("log")
    }

    pub(crate) fn pgdata(&self) -> PathBuf {
        self.dir.join(PGDATA)
    }
}

/// A folder with things in it that is not marked as ours is left alone.
fn refuse_foreign(dir: &Path) -> Result<()> {
    let mut entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io("read", dir)(e)),
    };
    if dir.join(LOCK).exists() || entries.next().is_none() {
        return Ok(());
    }
    match dir.join("PG_VERSION").exists() {
        true => Err(Error::ForeignCluster(dir.to_owned())),
        false => Err(Error::Foreign(dir.to_owned())),
    }
}

/// Makes the folder, and lets the server's user pass through it where that is not ourselves.
fn make_dir(dir: &Path) -> Result<()> {
    let root = rustix::process::geteuid().is_root();
    let mode = if root { 0o711 } else { 0o700 };
    DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(dir)
        .map_err(Error::io("create", dir))?;
    let now = fs::metadata(dir).map_err(Error::io("look at", dir))?;
    // Made beforehand by root, as `mktemp -d` makes it, or with a strict umask: it is ours alone,
    // so it is ours to open. What lies above it is not.
    if root && now.uid() == 0 && now.mode() & 0o011 != 0o011 {
        let mode = now.mode() & 0o7777 | 0o011;
        fs::set_permissions(dir, fs::Permissions::from_mode(mode)).map_err(Error::io("open up", dir))?;
    }
    Ok(())
}

fn read_password(dir: &Path) -> Result<String> {
    let path = dir.join(PASSWORD);
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim_end().to_owned()),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Error::PasswordGone(path)),
        Err(e) => Err(Error::io("read", &path)(e)),
    }
}

/// Makes a cluster beside its place and renames it into it, so that a kill leaves nothing half.
fn create(binaries: &Binaries, dir: &Path, user: &User, options: &Options, progress: &dyn Fn(&str)) -> Result<String> {
    progress(&format!(
        "creating a PostgreSQL {} cluster in {}",
        binaries.version,
        dir.display()
    ));
    let fresh = dir.join("pgdata.new");
    wait_for_initdb(&fresh)?;
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(Error::io("remove", &fresh))?;
    }
    DirBuilder::new()
        .mode(0o700)
        .create(&fresh)
        .map_err(Error::io("create", &fresh))?;
    user.give(&fresh)?;
    let password = hex(&rand::random::<[u8; 24]>());
    write_secret(&dir.join(PASSWORD), &password)?;

    // The server's user must read the password once, and only it.
    let pwfile = dir.join("password.initdb");
    write_secret(&pwfile, &password)?;
    user.give(&pwfile)?;
    let made = initdb(binaries, user, &fresh, &pwfile, options);
    let _ = fs::remove_file(&pwfile);
    made?;

    tune::include(&fresh, user)?;
    let pgdata = dir.join(PGDATA);
    fs::rename(&fresh, &pgdata).map_err(Error::io("create", &pgdata))?;
    File::open(dir)
        .and_then(|d| d.sync_all())
        .map_err(Error::io("flush", dir))?;
    Ok(password)
}

/// An initdb whose caller was killed works on in the folder that is about to be made anew. It ends by
/// itself, and nobody needs what it makes. It cannot be one of another caller: we have the lock.
fn wait_for_initdb(fresh: &Path) -> Result<()> {
    let deadline = Instant::now() + INITDB_LIMIT;
    while !processes_in(fresh).is_empty() || is_named(fresh) {
        if Instant::now() >= deadline {
            let what = "an initdb that was left behind".to_owned();
            let limit = INITDB_LIMIT;
            return Err(Error::TooSlow { what, limit });
        }
        pause();
    }
    Ok(())
}

fn initdb(binaries: &Binaries, user: &User, pgdata: &Path, pwfile: &Path, options: &Options) -> Result<()> {
    let attempt = |ctype: &str| -> Result<Option<Output>> {
        let mut initdb = server_program(&binaries.program("initdb"), user);
        initdb
            .arg("--pgdata")
            .arg(pgdata)
            .arg("--pwfile")
            .arg(pwfile)
            .args(["--username", SUPERUSER, "--auth", "scram-sha-256"])
            // Text sorts by its bytes: an update of libc cannot silently reorder an index, as it
            // can with every other libc collation. Only what is a letter comes from C.UTF-8.
            .args(["--encoding", "UTF8", "--locale", "C", "--lc-ctype", ctype])
            // The default since 18. A ledger wants to know when its disk lies.
            .arg("--data-checksums")
            .arg("--no-instructions");
        if !options.durable {
            initdb.arg("--no-sync");
        }
        run(&mut initdb, INITDB_LIMIT)
    };
    let mut output = attempt("C.UTF-8")?;
    // Old systems and small images have no C.UTF-8.
    if output
        .as_ref()
        .is_some_and(|o| o.stderr.contains("invalid locale name"))
    {
        output = attempt("C")?;
    }
    let reason = match output {
        Some(output) if output.status.success() => return Ok(()),
        Some(output) => output.reason(),
        None => format!("it cannot be run as {}", user.name),
    };
    let dir = pgdata.parent().unwrap_or(pgdata).to_owned();
    Err(Error::NotMade { dir, reason })
}

fn write_secret(path: &Path, secret: &str) -> Result<()> {
    // Never written through what lies there: a left-over of a killed process may be another's.
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
    .and_then(|()| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{secret}")?;
        file.sync_all()
    })
    .map_err(Error::io("write", path))
}
