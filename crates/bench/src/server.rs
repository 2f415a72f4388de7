//! Our server as a process of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;

use crate::error::{Error, Result};

/// Roles, schema and first tenant included.
const START_LIMIT: Duration = Duration::from_secs(120);
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// What the server's command line is made of.
#[derive(Debug, Clone)]
pub struct ServerParams {
    /// The superuser's URL of an empty database, over TCP.
    pub database_url: String,
    /// The same over the server's Unix socket, its folder percent-encoded as the host.
    pub socket_url: String,
    /// Where to listen: a free port.
    pub listen: String,
    /// A folder for what the server keeps beside the database: passwords, the operator key.
    pub data: PathBuf,
}

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    pid: u32,
    /// Where its stderr goes.
    log: PathBuf,
    /// Host and port.
    pub(crate) address: String,
    /// The operator's key.
    pub(crate) key: String,
}

impl Server {
    /// Starts it, and waits for the line on its stdout that has its address in it.
    pub(crate) async fn start(mut command: Command, params: &ServerParams, key: &Path, log: PathBuf) -> Result<Self> {
        let stderr = File::create(&log).map_err(Error::file("write", &log))?;
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let failed = |said: String| Error::Server {
            what: "could not be started",
            said,
        };
        let child = tokio::process::Command::from(command).kill_on_drop(true).spawn();
        let mut child = child.map_err(|error| failed(error.to_string()))?;
        let (Some(pid), Some(stdout)) = (child.id(), child.stdout.take()) else {
            return Err(Error::Thread);
        };
        let mut lines = BufReader::new(stdout).lines();
        let address = async {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Some(address) = address_in(&line) {
                    return Some(address);
                }
            }
            None
        };
        let address = match tokio::time::timeout(START_LIMIT, address).await {
            Ok(Some(address)) => address,
            Ok(None) => {
                let status = child
                    .wait()
                    .await
                    .map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(failed(last_words(&log).unwrap_or(status)));
            }
            Err(_) => {
                return Err(failed(format!(
                    "no address on its stdout within {} s",
                    START_LIMIT.as_secs()
                )));
            }
        };
        // What else it says must go somewhere, or it would wait for us one day.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let path = params.data.join(key);
        let key = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let key = key.split_whitespace().next().ok_or(Error::NoKey { path })?.to_owned();
        Ok(Self {
            child,
            pid,
            log,
            address,
            key,
        })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Ends it as an administrator would.
    pub(crate) async fn stop(mut self) -> Result<()> {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) {
            // Gone already is an exit status too.
            let _ = kill_process(pid, Signal::TERM);
        }
        let said = match tokio::time::timeout(STOP_LIMIT, self.child.wait()).await {
            Ok(Ok(status)) if status.success() => return Ok(()),
            Ok(Ok(status)) => format!("{status}, {}", last_words(&self.log).unwrap_or_default()),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it was still there after {} s", STOP_LIMIT.as_secs()),
        };
        Err(Error::Server {
            what: "did not stop as it should",
            said,
        })
    }
}

/// Host and port of the first address in a line.
fn address_in(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("http://")?;
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | ':' | '-' | '[' | ']')));
    let address = &rest[..end.unwrap_or(rest.len())];
    address
        .contains(':')
        .then(|| address.trim_end_matches(['.', ':']).to_owned())
}

/// The end of what it said: the folder it lies in is soon gone.
fn last_words(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    (!lines.is_empty()).then(|| lines[lines.len().saturating_sub(5)..].join(" | "))
}

#[cfg(test)]
mod tests {
    use super::address_in;

    #[test]
    fn an_address_is_found_wherever_it_stands_in_a_line() {
        for line in [
            "http://127.0.0.1:4711",
            "listening on http://127.0.0.1:4711/ now",
            r#"{"url":"http://127.0.0.1:4711"}"#,
        ] {
            assert_eq!(address_in(line).as_deref(), Some("127.0.0.1:4711"), "{line}");
        }
        assert_eq!(address_in("see http://example/"), None);
        assert_eq!(address_in("PostgreSQL at 127.0.0.1:5432"), None);
    }
}
