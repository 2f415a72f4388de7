//! `numeric(38,0)` in memory.

use std::error::Error;
use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A whole number of up to 38 digits, stored as `numeric`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Whole(pub i128);

/// `numeric` counts in base 10,000.
const BASE: u128 = 10_000;
/// 38 decimal digits need ten of them.
const DIGITS: usize = 10;
const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;

/// A number that 38 digits cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a whole number has at most 38 digits")]
pub struct OutOfRange;

impl Whole {
    /// 38 nines: what `numeric(38,0)` holds. An `i128` holds a little more.
    pub const MAX: Self = Self(99_999_999_999_999_999_999_999_999_999_999_999_999);
    pub const MIN: Self = Self(-Self::MAX.0);
    pub const ZERO: Self = Self(0);

    /// The number, if 38 digits hold it.
    pub fn new(value: i128) -> Result<Self, OutOfRange> {
        let whole = Self(value);
        (Self::MIN..=Self::MAX)
            .contains(&whole)
            .then_some(whole)
            .ok_or(OutOfRange)
    }

    /// The sum, if 38 digits hold it.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).and_then(|sum| Self::new(sum).ok())
    }

    /// The difference, if 38 digits hold it.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).and_then(|rest| Self::new(rest).ok())
    }

    /// The number with the other sign: there is always one.
    #[must_use]
    pub fn negated(self) -> Self {
        Self(-self.0)
    }
}

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<i64> for Whole {
    fn from(value: i64) -> Self {
        Self(value.into())
    }
}

/// Count of digits, weight of the first, sign, decimals to show; then the digits. Leading and
/// trailing zero digits are left out, and zero has none: what `numeric_send` writes.
impl ToSql for Whole {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        Self::new(self.0)?;
        let mut digits = [0u16; DIGITS];
        let mut rest = self.0.unsigned_abs();
        let mut first = DIGITS;
        while rest > 0 {
            first -= 1;
            digits[first] = (rest % BASE) as u16;
            rest /= BASE;
        }
        let all = &digits[first..];
        let used = all.iter().rposition(|&digit| digit != 0).map_or(0, |last| last + 1);
        out.reserve(8 + 2 * used);
        out.put_u16(used as u16);
        out.put_u16(all.len().saturating_sub(1) as u16);
        out.put_u16(if self.0 < 0 { NEGATIVE } else { POSITIVE });
        out.put_u16(0);
        for &digit in &all[..used] {
            out.put_u16(digit);
        }
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Whole {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        let (header, raw_digits) = raw.split_first_chunk::<8>().ok_or("numeric: too short")?;
        let field = |i: usize| u16::from_be_bytes([header[i], header[i + 1]]);
        let (count, weight) = (usize::from(field(0)), field(2) as i16);
        let negative = match field(4) {
            POSITIVE => false,
            NEGATIVE => true,
            _ => return Err("numeric: NaN and infinity are not whole numbers".into()),
        };
        if field(6) != 0 {
            return Err("numeric: a whole number has no decimals".into());
        }
        let (digits, []) = raw_digits.as_chunks::<2>() else {
            return Err("numeric: half a digit".into());
        };
        if digits.len() != count {
            return Err("numeric: not as many digits as it says".into());
        }
        let mut value = 0u128;
        for digit in digits {
            let digit = u128::from(u16::from_be_bytes(*digit));
            if digit >= BASE {
                return Err("numeric: a digit that is none".into());
            }
            value = value
                .checked_mul(BASE)
                .and_then(|v| v.checked_add(digit))
                .ok_or(OutOfRange)?;
        }
        // The zeros between the last digit and the decimal point.
        let zeros = i32::from(weight) + 1 - i32::try_from(count)?;
        if value != 0 {
            let zeros = u32::try_from(zeros).map_err(|_| "numeric: a fraction")?;
            let factor = BASE.checked_pow(zeros).ok_or(OutOfRange)?;
            value = value.checked_mul(factor).ok_or(OutOfRange)?;
        }
        let value = i128::try_from(value).map_err(|_| OutOfRange)?;
        Ok(Self::new(if negative { -value } else { value })?)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn binary(whole: Whole) -> Result<BytesMut, Box<dyn Error + Sync + Send>> {
        let mut out = BytesMut::new();
        whole.to_sql(&Type::NUMERIC, &mut out)?;
        Ok(out)
    }

    fn read(fields: [u16; 4], digits: &[u16]) -> Result<Whole, Box<dyn Error + Sync + Send>> {
        let mut raw = BytesMut::new();
        fields.iter().chain(digits).for_each(|&n| raw.put_u16(n));
        Whole::from_sql(&Type::NUMERIC, &raw)
    }

    /// The decimal text that `numeric` with these bytes stands for: the slow way, digit by digit.
    fn text_of(raw: &[u8]) -> String {
        let numbers: Vec<u16> = raw
            .chunks(2)
            .map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
            .collect();
        let (weight, digits) = (numbers[1], &numbers[4..]);
        assert_eq!(usize::from(numbers[0]), digits.len());
        assert_eq!(numbers[3], 0, "no decimals");
        assert!(digits.first() != Some(&0) && digits.last() != Some(&0), "{digits:?}");
        let mut text: String = digits.iter().map(|digit| format!("{digit:04}")).collect();
        if !digits.is_empty() {
            text.push_str(&"0000".repeat(usize::from(weight) + 1 - digits.len()));
        }
        let text = text.trim_start_matches('0');
        let sign = if numbers[2] == NEGATIVE { "-" } else { "" };
        format!("{sign}{}", if text.is_empty() { "0" } else { text })
    }

    fn wholes() -> impl Strategy<Value = Whole> {
        prop_oneof![
            (Whole::MIN.0..=Whole::MAX.0).prop_map(Whole),
            any::<i64>().prop_map(Whole::from),
            // Few digits and many zeros: where leading and trailing digits are left out.
            (-99_999i128..=99_999, 0u32..=33).prop_map(|(n, zeros)| Whole(n * 10i128.pow(zeros))),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(whole in wholes()) {
            let raw = binary(whole).unwrap();
            prop_assert_eq!(Whole::from_sql(&Type::NUMERIC, &raw).unwrap(), whole);
        }

        #[test]
        fn the_bytes_mean_the_same_as_the_text(whole in wholes()) {
            prop_assert_eq!(text_of(&binary(whole).unwrap()), whole.to_string());
        }

        #[test]
        fn no_bytes_panic(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = Whole::from_sql(&Type::NUMERIC, &raw);
        }

        #[test]
        fn no_header_panics(fields in any::<[u16; 4]>(), digits in prop::collection::vec(0u16..10_000, 0..12)) {
            let count = digits.len() as u16;
            let _ = read([count, fields[1], fields[2], fields[3]], &digits);
            let _ = read([count, fields[1] % 12, NEGATIVE, 0], &digits);
        }
    }

    #[test]
    fn the_edges() {
        for value in [0, 1, -1, 9_999, 10_000, -10_001, Whole::MAX.0, Whole::MIN.0] {
            let raw = binary(Whole(value)).unwrap();
            assert_eq!(text_of(&raw), value.to_string());
            assert_eq!(Whole::from_sql(&Type::NUMERIC, &raw).unwrap(), Whole(value));
        }
    }

    #[test]
    fn thirty_nine_digits_are_refused_both_ways() {
        assert!(binary(Whole(Whole::MAX.0 + 1)).is_err());
        assert!(binary(Whole(i128::MIN)).is_err());
        assert!(read([1, 9, POSITIVE, 0], &[100]).is_err(), "10^38");
        assert!(read([1, 9, NEGATIVE, 0], &[100]).is_err());
        assert_eq!(read([1, 9, POSITIVE, 0], &[99]).unwrap(), Whole(99 * 10i128.pow(36)));
        assert!(read([1, 32_767, POSITIVE, 0], &[1]).is_err());
        assert!(read([12, 11, POSITIVE, 0], &[9_999; 12]).is_err());
    }

    #[test]
    fn what_is_no_whole_number_is_refused() {
        assert!(read([0, 0, 0xC000, 0], &[]).is_err(), "NaN");
        assert!(read([0, 0, 0xD000, 0], &[]).is_err(), "Infinity");
        assert!(read([0, 0, 0xF000, 0], &[]).is_err(), "-Infinity");
        assert!(read([2, 0, POSITIVE, 1], &[1, 5_000]).is_err(), "1.5");
        assert!(
            read([1, 0, POSITIVE, 2], &[1]).is_err(),
            "1.00: a scale is not ours to drop"
        );
        assert!(
            read([2, 0, POSITIVE, 0], &[1, 5_000]).is_err(),
            "1.5 that shows no decimals"
        );
        assert!(read([1, 0xFFFF, POSITIVE, 0], &[5_000]).is_err(), "0.5");
        assert!(read([1, 0, POSITIVE, 0], &[10_000]).is_err(), "no digit");
        assert!(read([2, 0, POSITIVE, 0], &[1]).is_err(), "a digit is missing");
        assert!(Whole::from_sql(&Type::NUMERIC, &[0, 1, 0]).is_err(), "too short");
        assert!(Whole::from_sql(&Type::NUMERIC, &[0, 1, 0, 0, 0, 0, 0, 0, 9]).is_err());
    }

    #[test]
    fn zero_is_read_whatever_its_weight() {
        assert_eq!(read([0, 0, POSITIVE, 0], &[]).unwrap(), Whole::ZERO);
        assert_eq!(read([0, 0xFFF0, POSITIVE, 0], &[]).unwrap(), Whole::ZERO);
    }

    #[test]
    fn sums_stay_within_38_digits() {
        assert_eq!(Whole::MAX.checked_add(Whole(1)), None);
        assert_eq!(Whole::MIN.checked_sub(Whole(1)), None);
        assert_eq!(Whole::MAX.checked_add(Whole::MIN), Some(Whole::ZERO));
        assert_eq!(Whole::MAX.negated(), Whole::MIN);
    }
}
