//! A file that says who is at work, and a kernel lock that makes it true.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use crate::error::{Error, Result};

/// Held as long as this value lives. The kernel lets go of it when the process dies, however it
/// dies; children do not inherit it, because the standard library opens files close-on-exec.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the folder for this process, by the lock file of this name in it; where another process
    /// has it, the error names that one.
    pub fn of_folder(dir: &Path, name: &str) -> Result<Self> {
        Self::take(&dir.join(name))?.map_err(|holder| Error::InUse {
            dir: dir.to_owned(),
            holder,
        })
    }

    /// Takes the lock, or says who has it.
    pub(crate) fn take(path: &Path) -> Result<std::result::Result<Self, String>> {
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(Error::io("open", path))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                return Ok(Err(holder.trim().to_owned()));
            }
            Err(errno) => return Err(Error::io("lock", path)(errno.into())),
        }
        file.set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "process {}", std::process::id()))
            .map_err(Error::io("write", path))?;
        Ok(Ok(Self { _file: file }))
    }
}
