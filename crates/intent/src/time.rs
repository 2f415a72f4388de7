//! Times of a body: RFC 3339, to the microsecond, in years PostgreSQL and RFC 3339 both know.

use jiff::Timestamp;

/// The first moment that can be said in RFC 3339 and is not before the common era.
const FIRST: Timestamp = Timestamp::constant(-62_135_596_800, 0);

/// Reads `2026-01-31T12:00:00.123456Z` or the same with an offset. Finer digits are cut off.
pub fn time(text: &str) -> Option<Timestamp> {
    let parsed = if has_shape(text) {
        text.parse::<Timestamp>().ok()
    } else {
        None
    };
    let cut = parsed.and_then(|time| Timestamp::from_microsecond(time.as_microsecond()).ok());
    cut.filter(|time| *time >= FIRST)
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
