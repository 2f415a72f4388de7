//! Times of a body: RFC 3339, to the microsecond, in years PostgreSQL and RFC 3339 both know.

use counterfoil_intent::Invalid;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::codes;

/// The first moment that can be said in RFC 3339 and is not before the common era.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Reads `2026-01-31T12:00:00.123456Z` or the same with an offset. Finer digits are cut off.
pub(crate) fn time(text: &str, field: &str) -> Result<Timestamp, Invalid> {
    let parsed = if has_shape(text) {
        text.parse::<Timestamp>().ok()
    } else {
        None
    };
    let cut = parsed.and_then(|time| Timestamp::from_microsecond(time.as_microsecond()).ok());
    cut.filter(|time| *time >= FIRST).ok_or_else(|| {
        Invalid::new(
            codes::TIME_INVALID,
            field,
            "a time is written as in RFC 3339, with Z or an offset, from the year 1 to 9999, like 2026-01-31T12:00:00Z",
        )
    })
}

/// jiff reads much more than RFC 3339; one spelling is enough to remember.
fn has_shape(text: &str) -> bool {
    let Some((date_time, rest)) = text.as_bytes().split_at_checked(19) else {
        return false;
    };
    let shape = b"0000-00-00T00:00:00";
    let fits = |given: &u8, want: &u8| match want {
        b'0' => given.is_ascii_digit(),
        b'T' => matches!(given, b'T' | b't'),
        _ => given == want,
    };
    if !date_time.iter().zip(shape).all(|(given, want)| fits(given, want)) {
        return false;
    }
    let rest = match rest.strip_prefix(b".") {
        None => rest,
        Some(fraction) => {
            let digits = fraction.iter().take_while(|b| b.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return false;
            }
            &fraction[digits..]
        }
    };
    match rest {
        b"Z" | b"z" => true,
        [b'+' | b'-', offset @ ..] if offset.len() == 5 => offset.iter().zip(b"00:00").all(|(g, w)| fits(g, w)),
        _ => false,
    }
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
    fn one_moment_in_several_spellings_is_one_time() {
        let noon = time("2026-01-31T12:00:00Z", "t").unwrap();
        for text in [
            "2026-01-31t12:00:00z",
            "2026-01-31T13:30:00+01:30",
            "2026-01-31T12:00:00.000000Z",
            "2026-01-31T12:00:00-00:00",
        ] {
            assert_eq!(time(text, "t"), Ok(noon), "{text}");
        }
        assert_eq!(time("2026-01-31T12:00:00.0000009Z", "t"), Ok(noon));
        assert!(time("0001-01-01T00:00:00Z", "t").is_ok());
    }

    #[test]
    fn other_spellings_and_other_years_are_refused() {
        for text in [
            "",
            "2026-01-31",
            "2026-01-31 12:00:00Z",
            "2026-01-31T12:00:00",
            "2026-01-31T12:00Z",
            "20260131T120000Z",
            "2026-02-30T12:00:00Z",
            "2026-01-31T24:00:00Z",
            "2026-01-31T12:00:00.Z",
            "2026-01-31T12:00:00+01",
            "-000001-01-31T12:00:00Z",
            "0000-12-31T23:59:59Z",
            "0001-01-01T00:00:00+01:00",
            "2026-01-31T12:00:00Z[UTC]",
            "2026-01-31T12:00:00.0000000001Z",
            "12:00",
            "now",
            "1769860800",
        ] {
            assert_eq!(
                time(text, "t").map_err(|invalid| invalid.code),
                Err(codes::TIME_INVALID),
                "{text}"
            );
        }
    }

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
