//! What the figures were measured on.

use std::fs;
use std::path::Path;
use std::time::Duration;

/// One line: processor, cores, memory, kernel, file system.
pub(crate) fn describe(folder: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal")
        .and_then(|text| kilobytes(&text))
        .unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let disk = file_system(folder).unwrap_or_else(|| "an unknown file system".to_owned());
    let gib = (memory + (1 << 19)) >> 20;
    let plural = if cores == 1 { "" } else { "s" };
    format!(
        "{cpu}, {cores} core{plural}, {gib} GiB, Linux {}, {disk}",
        kernel.trim()
    )
}

/// The most memory a process has had in RAM, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), "VmHWM")
        .and_then(|text| kilobytes(&text))
        .map(|kb| kb << 10)
}

/// Processor time that processes have had so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cpu {
    /// This process: the load, and whatever client library it goes through.
    pub(crate) load: Duration,
    pub(crate) server: Duration,
    /// The postmaster and all its children.
    pub(crate) postgres: Duration,
    /// All of the machine, and what its host took from it.
    pub(crate) machine: Duration,
}

impl Cpu {
    pub(crate) fn now(server: Option<u32>, postmaster: Option<u32>) -> Self {
        let of = |pid: u32| Stat::of(&pid.to_string());
        let postmaster_stat = postmaster.and_then(of);
        let children = || {
            let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
            let stats = entries.filter_map(|entry| Stat::of(entry.file_name().to_str()?));
            stats
                .filter(|stat| Some(stat.parent) == postmaster)
                .map(|stat| stat.own)
                .sum()
        };
        Self {
            load: of(std::process::id()).map_or(Duration::ZERO, |stat| stat.own),
            server: server.and_then(of).map_or(Duration::ZERO, |stat| stat.own),
            // Children that have ended are counted in their parent.
            postgres: postmaster_stat.map_or(Duration::ZERO, |stat| stat.own + stat.ended + children()),
            machine: busy().unwrap_or_default(),
        }
    }
}

/// How long the machine's cores have not been idle, added up.
fn busy() -> Option<Duration> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let numbers = text
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map(str::parse::<u64>);
    let ticks: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    // user, nice, system, idle, waiting for a disk, two kinds of interrupts, stolen; guests are in user.
    Some(seconds(ticks.get(..8)?.iter().sum::<u64>() - ticks[3] - ticks[4]))
}

/// What the kernel counts in ticks.
#[allow(clippy::cast_precision_loss)]
fn seconds(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Of `/proc/<pid>/stat`, what is needed here.
struct Stat {
    parent: u32,
    own: Duration,
    ended: Duration,
}

impl Stat {
    fn of(pid: &str) -> Option<Self> {
        if !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in front may have blanks and parentheses in it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let time = |a, b| Some(seconds(ticks(a)? + ticks(b)?));
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            own: time(11, 12)?,
            ended: time(13, 14)?,
        })
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse().ok()
}

/// The type of the file system a folder is on.
pub(crate) fn file_system(folder: &Path) -> Option<String> {
    let folder = fs::canonicalize(folder).ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let over = mounts.filter(|(at, _)| folder.starts_with(at));
    over.max_by_key(|(at, _)| at.len()).map(|(_, kind)| kind.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described_and_this_process_measured() {
        let text = describe(Path::new("/"));
        assert!(
            text.contains(" core") && text.contains("Linux") && !text.contains(" 0 GiB"),
            "{text}"
        );
        assert!(peak_memory(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(file_system(Path::new("/proc")).as_deref(), Some("proc"));
    }

    #[test]
    fn processor_time_goes_up_and_children_are_known_by_their_parent() {
        let me = std::process::id();
        let before = Cpu::now(Some(me), None);
        // The time on the wall says nothing of how much of it this process had.
        let start = std::time::Instant::now();
        let after = loop {
            let after = Cpu::now(Some(me), None);
            if after.server > before.server {
                break after;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "it stands still");
        };
        assert!(after.postgres.is_zero());
        // The two are read one after the other, and a tick may come between them.
        assert!(Cpu::now(Some(me), None).load >= after.server);
        let parent = Stat::of(&me.to_string()).unwrap().parent;
        assert!(Cpu::now(None, Some(parent)).postgres >= after.load);
    }
}
