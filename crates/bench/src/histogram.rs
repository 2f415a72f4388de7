//! Times, counted in buckets that are at most a sixty-fourth wide.

use std::time::Duration;

/// Buckets per doubling: 64, so a quantile is off by less than 1.6 %.
const BITS: u32 = 6;
const PER_DOUBLING: usize = 1 << BITS;

/// Counts of times from 1 ns to centuries.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; PER_DOUBLING * (64 - BITS as usize + 1)],
            total: 0,
        }
    }

    pub(crate) fn add(&mut self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(nanos)] += 1;
        self.total += 1;
    }

    /// The time that the given part of all is not longer than; in milliseconds.
    pub(crate) fn millis(&self, quantile: f64) -> f64 {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let rank = ((quantile * self.total as f64).ceil() as u64).max(1);
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return middle(at) / 1e6;
            }
        }
        0.0
    }
}

fn bucket(nanos: u64) -> usize {
    // Below 2^BITS each value has its own.
    let shift = (64 - BITS - 1).saturating_sub((nanos | 1).leading_zeros());
    let within = usize::try_from(nanos >> shift).expect("few bits are left");
    within + shift as usize * PER_DOUBLING
}

#[allow(clippy::cast_precision_loss)]
fn middle(at: usize) -> f64 {
    // A value with `shift` bits cut off starts at PER_DOUBLING within its row.
    let shift = (at / PER_DOUBLING).saturating_sub(1);
    let within = at - shift * PER_DOUBLING;
    if shift == 0 {
        within as f64
    } else {
        (within as f64 + 0.5) * (shift as f64).exp2()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_time_back_within_one_part_in_sixty_four() {
        for nanos in [
            0,
            1,
            63,
            64,
            65,
            127,
            128,
            129,
            1_000,
            4_095,
            4_096,
            123_456_789,
            9_876_543_210,
            u64::MAX,
        ] {
            let (given, back) = (nanos as f64, middle(bucket(nanos)));
            assert!((given - back).abs() <= given / 64.0, "{given} {back}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times_added() {
        let mut histogram = Histogram::new();
        assert!(histogram.millis(0.5).abs() < f64::EPSILON);
        for millis in 1..=1_000 {
            histogram.add(Duration::from_millis(millis));
        }
        for (quantile, expected) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found = histogram.millis(quantile);
            assert!((found - expected).abs() < expected / 60.0, "{quantile}: {found}");
        }
    }
}
