//! Times of a body: RFC 3339, to the microsecond, in years PostgreSQL and RFC 3339 both know.

use jiff::Timestamp;

/// The first moment that can be said in RFC 3339 and is not before the common era.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// What [`time`] takes, for the message where it does not.
pub const A_TIME: &str = "a time is written as in RFC 3339, with Z or an offset, like 2026-01-31T12:00:00Z, \
    from 0001-01-01T00:00:00Z to 9999-12-30T22:00:00Z; a leap second as the second before it";

/// Reads `2026-01-31T12:00:00.123456Z` or the same with an offset. Finer digits are cut off.
#[must_use]
pub fn time(text: &str) -> Option<Timestamp> {
    if !has_shape(text) {
        return None;
    }
    let time = text.parse::<Timestamp>().ok()?;
    // Downwards also before 1970.
    let micros = i64::try_from(time.as_nanosecond().div_euclid(1_000)).ok()?;
    Timestamp::from_microsecond(micros).ok().filter(|time| *time >= FIRST)
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
    // jiff takes it at any minute, and PostgreSQL has none.
    if date_time.ends_with(b":60") {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_moment_in_several_spellings_is_one_time() {
        let noon = time("2026-01-31T12:00:00Z").unwrap();
        for text in [
            "2026-01-31t12:00:00z",
            "2026-01-31T13:30:00+01:30",
            "2026-01-31T12:00:00.000000Z",
            "2026-01-31T12:00:00-00:00",
        ] {
            assert_eq!(time(text), Some(noon), "{text}");
        }
        assert_eq!(time("2026-01-31T12:00:00.0000009Z"), Some(noon));
        assert!(time("0001-01-01T00:00:00Z").is_some());
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
            "2016-12-31T23:59:60Z",
            "2026-01-31T12:00:60Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
    }

    #[test]
    fn times_are_cut_downwards_also_before_1970() {
        assert_eq!(
            time("1969-12-31T23:59:59.9999999Z"),
            time("1969-12-31T23:59:59.999999Z")
        );
        assert_eq!(
            time("9999-12-30T22:00:00Z").map(|time| time.to_string()).as_deref(),
            Some("9999-12-30T22:00:00Z")
        );
    }
}
