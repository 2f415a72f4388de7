//! Quarters of an hour, UTC.

use std::time::Duration;

use jiff::Timestamp;

/// The unit of every count. Nearly every zone's day is made of them.
pub const BUCKET: Duration = Duration::from_secs(900);

const MICROS: i64 = 900_000_000;

/// The beginning of the bucket in which a moment is. As `date_bin` does: also before 1970, time is cut
/// downwards.
#[must_use]
pub(crate) fn start(at: Timestamp) -> Timestamp {
    let micros = at.as_microsecond();
    Timestamp::from_microsecond(micros - micros.rem_euclid(MICROS)).unwrap_or(Timestamp::MIN)
}

/// The beginning of the first bucket that is not before a moment.
pub(crate) fn ceiling(at: Timestamp) -> Timestamp {
    let start = start(at);
    if start == at {
        at
    } else {
        Timestamp::from_microsecond(start.as_microsecond().saturating_add(MICROS)).unwrap_or(Timestamp::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_in_the_quarter_that_began_last() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(start(at("2026-11-30T23:59:59.999999Z")), at("2026-11-30T23:45:00Z"));
        assert_eq!(start(at("2026-11-30T23:45:00Z")), at("2026-11-30T23:45:00Z"));
        assert_eq!(start(at("1969-12-31T23:59:59Z")), at("1969-12-31T23:45:00Z"));
        assert_eq!(ceiling(at("2026-11-30T23:45:00.000001Z")), at("2026-12-01T00:00:00Z"));
        assert_eq!(ceiling(at("2026-11-30T23:45:00Z")), at("2026-11-30T23:45:00Z"));
    }
}
