//! How often, and after which pauses, a whole transaction is run again.

use std::time::Duration;

/// Attempts and pauses: `ATTEMPTS` in all, the pause before attempt n + 1 drawn from the upper half
/// of `FIRST · 2^(n-1)`, capped at `LONGEST`. The jitter is what breaks up the pair that
/// deadlocked: with equal pauses they would meet again.
#[derive(Debug, Default)]
pub struct Backoff {
    failed: u32,
}

impl Backoff {
    pub const ATTEMPTS: u32 = 8;
    pub const FIRST: Duration = Duration::from_millis(5);
    pub const LONGEST: Duration = Duration::from_millis(500);

    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a failed attempt. The pause before the next one; `None` when this was the last.
    pub fn next_pause(&mut self) -> Option<Duration> {
        self.failed += 1;
        (self.failed < Self::ATTEMPTS).then(|| self.pause())
    }

    /// As `next_pause`, for a caller that is bounded by time instead: the pauses stop growing.
    pub fn endless_pause(&mut self) -> Duration {
        self.failed = self.failed.saturating_add(1);
        self.pause()
    }

    fn pause(&self) -> Duration {
        let doubled = Self::FIRST * 2u32.pow((self.failed - 1).min(16));
        let longest = doubled.min(Self::LONGEST);
        rand::random_range(longest / 2..=longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_attempts_with_growing_pauses() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = std::iter::from_fn(|| backoff.next_pause()).collect();
        assert_eq!(pauses.len(), 7, "eight attempts have seven pauses between them");
        let mut longest = Backoff::FIRST;
        for pause in pauses {
            assert!(pause >= longest / 2 && pause <= longest, "{pause:?} of {longest:?}");
            longest = (longest * 2).min(Backoff::LONGEST);
        }
        assert_eq!(backoff.next_pause(), None);
    }

    #[test]
    fn an_endless_backoff_stays_within_its_cap() {
        let mut backoff = Backoff::new();
        for _ in 0..100 {
            assert!(backoff.endless_pause() <= Backoff::LONGEST);
        }
    }
}
