//! Times of a body: RFC 3339, to the microsecond, in years PostgreSQL and RFC 3339 both know.

use counterfoil_intent::Invalid;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::codes;

/// The first moment that can be said in RFC 3339 and is not before the common era.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Reads a time as `counterfoil_intent::time` does.
pub(crate) fn time(text: &str, field: &str) -> Result<Timestamp, Invalid> {
    counterfoil_intent::time(text).ok_or_else(|| Invalid::new(codes::TIME_INVALID, field, counterfoil_intent::A_TIME))
}

/// Reads `2026-01-31` as midnight UTC.
pub(crate) fn date(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let shape = bytes.len() == 10
        && bytes.iter().enumerate().all(|(i, b)| {
            if matches!(i, 4 | 7) {
                *b == b'-'
            } else {
                b.is_ascii_digit()
            }
        });
    if !shape {
        return None;
    }
    let date: Date = text.parse().ok()?;
    date.to_zoned(TimeZone::UTC)
        .ok()
        .map(|zoned| zoned.timestamp())
        .filter(|time| *time >= FIRST)
}

/// The bytes of a time in the normal form of a body.
pub(crate) fn bytes(time: Timestamp) -> [u8; 8] {
    time.as_microsecond().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_its_midnight_in_utc() {
        assert_eq!(date("2019-01-01"), Some(time("2019-01-01T00:00:00Z", "t").unwrap()));
        for text in [
            "2019-1-1",
            "2019-02-29",
            "20190101",
            "2019-01-01T00:00:00Z",
            "0000-01-01",
            "2019/01/01",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
    }
}
