//! The registry of advisory-lock keys.
//!
//! Advisory locks are one space of numbers per database, shared with everybody who uses it. All of
//! ours have the two-integer form with one class id, so that `pg_locks` (`classid`, `objid`) tells
//! them from those of the application beside us, and a new one cannot collide with an old one.
//! They are always transaction-level: a session-level lock would leak through a pooler, and would
//! survive the transaction that it protects.

/// What an advisory lock protects. The number is its `objid`, and is never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum AdvisoryLock {
    /// Shared: a batch that finds or writes stubs of the open generation. Exclusive: rotation,
    /// which only ever *tries*. An exclusive request that queued would stop every batch behind it.
    StubGenerations = 1,
    /// Exclusive: one process migrates at a time.
    Migrations = 2,
    /// Exclusive: makes and drops the partitions of the outcome table.
    OutcomePartitions = 4,
    /// Exclusive, by trying: folds deltas of events into the rollup.
    Fold = 5,
}

impl AdvisoryLock {
    /// `classid` of every lock of ours: "CFOI" in ASCII.
    pub const CLASS: i32 = 0x4346_4F49;

    pub const ALL: [Self; 4] = [
        Self::StubGenerations,
        Self::Migrations,
        Self::OutcomePartitions,
        Self::Fold,
    ];

    /// `objid`.
    #[must_use]
    pub const fn object(self) -> i32 {
        self as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_locks_share_a_key() {
        let mut keys: Vec<_> = AdvisoryLock::ALL.iter().map(|lock| lock.object()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), AdvisoryLock::ALL.len());
    }
}
