//! Whom PostgreSQL runs as. It refuses root, and initdb wants a user with a name.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::command::{run, server_program, tool};
use crate::error::{Error, Result};

const LIMIT: Duration = Duration::from_secs(30);

/// Created where root starts us on a machine without a `postgres` user.
const OWN_NAME: &str = "counterfoil";

/// The user of the server's processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub name: String,
    uid: u32,
    gid: u32,
    /// True where we are root and children must change to this user.
    switch: bool,
}

impl User {
    /// The user for a cluster. Whoever owns existing data goes on owning it, whatever users the
    /// machine has gained since; a plain user runs everything as themselves.
    pub fn for_data(pgdata: &Path) -> Result<Self> {
        let me = rustix::process::geteuid().as_raw();
        if me != 0 {
            return named(&me.to_string()).ok_or(Error::NamelessUser(me));
        }
        if let Ok(owner) = fs::metadata(pgdata).map(|m| m.uid())
            && owner != 0
        {
            let user = named(&owner.to_string()).ok_or(Error::NamelessUser(owner))?;
            return Ok(user.switched());
        }
        if let Some(user) = Self::existing() {
            return Ok(user);
        }
        create()?;
        named(OWN_NAME)
            .map(Self::switched)
            .ok_or_else(|| Error::NoUser(format!("{OWN_NAME} is not there after useradd")))
    }

    /// The user there is now, without making one: ourselves, or who serves root. `None`: root, on a
    /// machine that has neither.
    pub fn existing() -> Option<Self> {
        let me = rustix::process::geteuid().as_raw();
        if me != 0 {
            return Some(Self {
                name: me.to_string(),
                uid: me,
                gid: rustix::process::getegid().as_raw(),
                switch: false,
            });
        }
        ["postgres", OWN_NAME]
            .iter()
            .find_map(|name| named(name))
            .map(Self::switched)
    }

    /// Root itself: only for questions like `postgres --version`, which it may ask.
    pub fn ourselves() -> Self {
        Self {
            name: "root".to_owned(),
            uid: 0,
            gid: 0,
            switch: false,
        }
    }

    fn switched(mut self) -> Self {
        self.switch = true;
        self
    }

    pub fn switch_to(&self) -> Option<(u32, u32)> {
        self.switch.then_some((self.uid, self.gid))
    }

    /// Gives a path that we made to this user; nothing to do where we are that user.
    pub fn give(&self, path: &Path) -> Result<()> {
        match self.switch_to() {
            Some((uid, gid)) => chown(path, Some(uid), Some(gid)).map_err(Error::io("change the owner of", path)),
            None => Ok(()),
        }
    }

    pub fn owns(&self, metadata: &fs::Metadata) -> bool {
        metadata.uid() == self.uid
    }

    /// Asks the system, not the mode bits, whether this user can enter `dir`: access lists and
    /// mounts have a say too. Names the first folder on the way that is shut.
    pub fn can_enter(&self, dir: &Path) -> Result<()> {
        const WALK: &str = r#"for d in "$@"; do cd -- "$d" 2>/dev/null || { printf %s "$d"; exit 1; }; done"#;
        let mut way: Vec<&Path> = dir.ancestors().collect();
        way.reverse();
        let mut shell = server_program(Path::new("/bin/sh"), self);
        shell.args(["-c", WALK, "sh"]).args(way);
        match run(&mut shell, LIMIT)? {
            Some(output) if output.status.success() => Ok(()),
            Some(output) => Err(Error::CannotEnter {
                user: self.name.clone(),
                blocked: PathBuf::from(output.stdout),
            }),
            None => Err(Error::NoUser(format!("cannot run as {}", self.name))),
        }
    }
}

/// Looks a name or a number up wherever this machine keeps its users.
fn named(key: &str) -> Option<User> {
    let entry = match run(tool("getent").args(["passwd", key]), LIMIT) {
        Ok(Some(output)) => output.stdout,
        // Without getent (a small image) there is only the file.
        _ => fs::read_to_string("/etc/passwd").unwrap_or_default(),
    };
    entry.lines().find_map(|line| entry_of(line, key))
}

/// `name:password:uid:gid:…`
fn entry_of(line: &str, key: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    let uid = fields.nth(1)?;
    let gid = fields.next()?;
    (name == key || uid == key).then_some(())?;
    Some(User {
        name: name.to_owned(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        switch: false,
    })
}

fn create() -> Result<()> {
    // shadow's tool, then busybox's.
    let ways: [&[&str]; 2] = [
        &[
            "useradd",
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
            "--shell",
            "/usr/sbin/nologin",
            OWN_NAME,
        ],
        &["adduser", "-S", "-D", "-H", OWN_NAME],
    ];
    let mut reason = "neither useradd nor adduser is installed".to_owned();
    for way in ways {
        match run(tool(way[0]).args(&way[1..]), LIMIT)? {
            Some(output) if output.status.success() => return Ok(()),
            Some(output) => reason = output.reason(),
            None => {}
        }
    }
    Err(Error::NoUser(reason))
}

#[cfg(test)]
mod tests {
    use super::entry_of;

    #[test]
    fn a_passwd_line_is_found_by_name_and_by_number() {
        let line = "postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash";
        assert_eq!(entry_of(line, "postgres"), entry_of(line, "101"));
        assert_eq!(entry_of(line, "postgres").map(|u| u.gid), Some(104));
        assert_eq!(entry_of(line, "104"), None);
        assert_eq!(entry_of("broken", "broken"), None);
    }
}
