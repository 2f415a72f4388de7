//! What a run found out.

use std::fmt::Write as _;

use serde::Serialize;

use crate::load::Measured;

/// One benchmark: the naive way and ours on one server. Serialises to one JSON object.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub name: String,
    pub naive: Side,
    pub ours: Side,
    /// Ours a second over naive a second.
    pub ratio: f64,
    /// Ours; of a whole request, where requests are arrays.
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// How much longer ours takes in the middle case, which is what `alone` is about.
    pub longer_ms: f64,
    /// Ours: transactions a second that wrote something.
    pub commits_per_s: f64,
    /// Ours: bytes of WAL for one unit.
    pub wal_bytes_per_unit: f64,
    /// The most memory our server had.
    pub server_rss_mb: f64,
    pub seconds: u32,
    /// Accounts beside the hot one; of events, subjects.
    pub accounts: u32,
    /// Whether the naive way went without foreign keys and indexes for statements.
    pub lean: bool,
    pub postgres: String,
    pub machine: String,
}

/// One side of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Side {
    /// Units landed a second.
    pub per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub commits_per_s: f64,
    pub wal_bytes_per_unit: f64,
    /// Microseconds of processor time for one unit.
    pub cpu_us_per_unit: Cpu,
    /// Cores that everybody else on the machine kept busy meanwhile, the kernel's own threads
    /// included: much above 0.1 says that the run was not alone, and its figures are too low.
    pub others_cores: f64,
    /// Connections, each with one call or request on the way.
    pub connections: usize,
    /// Units in a call or request.
    pub units: usize,
    /// Units landed in the whole run, warm-up included: what the database was held against.
    pub landed: u64,
    /// Units answered with 429, and not sent again.
    pub turned_away: u64,
}

/// Where the processors' time went.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Cpu {
    /// The load with its client library.
    pub load: f64,
    /// Our server.
    pub server: f64,
    /// PostgreSQL with all its processes.
    pub postgres: f64,
}

impl Side {
    pub(crate) fn new(measured: &Measured, seconds: u32, connections: usize, units: usize) -> Self {
        let tally = &measured.tally;
        #[allow(clippy::cast_precision_loss)]
        let per_s = tally.in_time as f64 / f64::from(seconds);
        let rates = measured.before.rates(measured.after);
        let [load, server, postgres] = rates.cpu.map(|busy| round(busy / per_s * 1e6, 1));
        Self {
            per_s: round(per_s, 1),
            p50_ms: round(tally.times.millis(0.5), 3),
            p99_ms: round(tally.times.millis(0.99), 3),
            commits_per_s: round(rates.commits, 1),
            wal_bytes_per_unit: round(rates.wal / per_s, 0),
            cpu_us_per_unit: Cpu { load, server, postgres },
            others_cores: round(rates.others, 2),
            connections,
            units,
            landed: tally.all.accepted,
            turned_away: tally.all.turned_away,
        }
    }
}

/// To so many decimals: more would claim a precision that no run has.
pub(crate) fn round(value: f64, decimals: i32) -> f64 {
    let power = 10_f64.powi(decimals);
    (value * power).round() / power
}

/// Cores of others that are still no disturbance: kernel threads write pages back all the time.
const NOISE: f64 = 0.15;

impl Report {
    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut out = format!(
            "{}: {} s each way, {} {}, PostgreSQL {}\n{}\n\n",
            self.name,
            self.seconds,
            thousands(f64::from(self.accounts)),
            if self.name.starts_with("events-") {
                "subjects"
            } else {
                "accounts"
            },
            self.postgres,
            self.machine
        );
        out.push_str("        units/s     p50 ms     p99 ms   commits/s  WAL B/unit  in flight  CPU us/unit: load, server, PostgreSQL\n");
        for (name, side) in [("naive", &self.naive), ("ours", &self.ours)] {
            let flight = match side.units {
                1 => side.connections.to_string(),
                units => format!("{} x {units}", side.connections),
            };
            let _ = writeln!(
                out,
                "{name:<5} {:>9} {:>10.3} {:>10.3} {:>11} {:>11} {flight:>10} {:>18.1} {:>7.1} {:>11.1}",
                thousands(side.per_s),
                side.p50_ms,
                side.p99_ms,
                thousands(side.commits_per_s),
                thousands(side.wal_bytes_per_unit),
                side.cpu_us_per_unit.load,
                side.cpu_us_per_unit.server,
                side.cpu_us_per_unit.postgres,
            );
        }
        let _ = write!(
            out,
            "\nours / naive: {:.2}; {:+.3} ms at p50; server at most {:.0} MB",
            self.ratio, self.longer_ms, self.server_rss_mb
        );
        if self.lean {
            out.push_str("; the naive way without foreign keys and indexes for statements");
        }
        if self.ours.turned_away > 0 {
            let _ = write!(out, "; {} turned away with 429", self.ours.turned_away);
        }
        let others = self.naive.others_cores.max(self.ours.others_cores);
        if others > NOISE {
            let _ = write!(
                out,
                "\nothers kept up to {others:.2} cores busy: the figures are too low"
            );
        }
        out.push('\n');
        out
    }
}

/// A whole number with commas.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let side = |per_s, units| Side {
            per_s,
            p50_ms: 1.5,
            p99_ms: 2.25,
            commits_per_s: 1_000.0,
            wal_bytes_per_unit: 512.0,
            cpu_us_per_unit: Cpu {
                load: 1.0,
                server: 20.5,
                postgres: 30.0,
            },
            others_cores: 0.0,
            connections: 4,
            units,
            landed: 5,
            turned_away: 0,
        };
        Report {
            name: "transfers-hot".to_owned(),
            naive: side(999.6, 1),
            ours: side(1_234_567.0, 500),
            ratio: 3.0,
            p50_ms: 1.5,
            p99_ms: 2.25,
            longer_ms: 0.25,
            commits_per_s: 1_000.0,
            wal_bytes_per_unit: 512.0,
            server_rss_mb: 80.0,
            seconds: 10,
            accounts: 100_000,
            lean: false,
            postgres: "15.1".to_owned(),
            machine: "m".to_owned(),
        }
    }

    #[test]
    fn the_object_has_the_members_that_are_promised() {
        let json = serde_json::to_value(report()).unwrap();
        for name in [
            "name",
            "ratio",
            "p50_ms",
            "p99_ms",
            "commits_per_s",
            "wal_bytes_per_unit",
            "machine",
        ] {
            assert!(json.get(name).is_some(), "{name}");
        }
        assert_eq!(json["naive"]["per_s"], 999.6);
        assert_eq!(json["ours"]["per_s"], 1_234_567.0);
    }

    #[test]
    fn the_table_has_its_columns_under_their_heads() {
        let table = report().table();
        let ends: Vec<usize> = table.lines().skip(3).take(3).map(str::len).collect();
        assert_eq!(ends, [ends[0]; 3], "\n{table}");
        assert!(table.contains("1,234,567") && table.contains("4 x 500"), "\n{table}");
    }
}
