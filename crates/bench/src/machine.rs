//! What the figures were measured on.

use std::fs;
use std::path::Path;

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

/// How many processes wanted a core over the last minute: more than a little before a run means
/// that somebody else was at work.
pub(crate) fn load() -> Option<f64> {
    fs::read_to_string("/proc/loadavg")
        .ok()?
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}

/// The most memory a process has had in RAM, in bytes.
pub(crate) fn peak_memory(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}/status"), "VmHWM")
        .and_then(|text| kilobytes(&text))
        .map(|kb| kb << 10)
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
}
