//! The benchmarks there are.

use crate::error::{Error, Result};

/// Their names, as `counterfoil bench NAME` takes them.
pub const NAMES: &[&str] = &[
    "transfers-hot",
    "transfers-random",
    "transfers-hot-batch",
    "transfers-random-batch",
    "alone",
    "events-batch",
    "events-single",
];

/// Which accounts a transfer is between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pick {
    /// From one account that all transfers share to one among many.
    Hot,
    /// Between any two different ones.
    Random,
}

/// One benchmark.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    pub(crate) pick: Pick,
    /// Accounts beside the hot one; of events, subjects.
    pub(crate) accounts: u32,
    /// Connections of the naive side, each with one call on the way.
    pub(crate) naive: usize,
    /// Connections of ours, each with one request on the way.
    pub(crate) ours: usize,
    /// Intents or events in a request; `None` sends a single one, not an array of one.
    pub(crate) batch: Option<usize>,
}

/// Enough that two of 32 transactions seldom meet.
const ACCOUNTS: u32 = 100_000;

/// Enough that a batch has about as many deltas as events: few would make counting cheap.
const SUBJECTS: u32 = 1_000;

impl Bench {
    /// Whether events are what is measured, and not transfers.
    pub(crate) fn is_events(&self) -> bool {
        self.name.starts_with("events-")
    }

    pub(crate) fn named(name: &str) -> Result<Self> {
        let at = NAMES.iter().position(|known| *known == name);
        let name = NAMES[at.ok_or_else(|| Error::UnknownName(name.to_owned()))?];
        let pick = if name.starts_with("transfers-hot") {
            Pick::Hot
        } else {
            Pick::Random
        };
        let one = Self {
            name,
            pick,
            accounts: ACCOUNTS,
            naive: 32,
            ours: 256,
            batch: None,
        };
        Ok(match name {
            // COPY and the server's /healthz under the same load as ours.
            "events-batch" => Self {
                accounts: SUBJECTS,
                naive: 4,
                ours: 4,
                batch: Some(1_000),
                ..one
            },
            "events-single" => Self {
                accounts: SUBJECTS,
                naive: 256,
                ..one
            },
            // 4 × 500 is what may wait of one tenant.
            _ if name.ends_with("-batch") => Self {
                ours: 4,
                batch: Some(500),
                ..one
            },
            "alone" => Self {
                naive: 1,
                ours: 1,
                ..one
            },
            _ => one,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_bench() {
        for name in NAMES {
            let bench = Bench::named(name).unwrap();
            assert_eq!(bench.name, *name);
            assert_eq!(bench.batch.is_some(), name.ends_with("-batch"));
            assert_eq!(bench.pick == Pick::Hot, name.contains("hot"));
        }
        assert!(Bench::named("transfers").is_err());
    }
}
