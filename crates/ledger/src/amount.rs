//! Amounts: their own grammar at the edges, whole numbers of the smallest unit inside.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use counterfoil_intent::{Invalid, Refusal};
use counterfoil_pg::Whole;

use crate::asset::AssetCode;
use crate::codes;

/// The most digits of an amount: those of `numeric(38,0)`.
pub const MAX_DIGITS: usize = 38;
/// The largest scale of an asset.
pub const MAX_SCALE: u8 = 18;
/// The largest amount in an asset's smallest unit.
pub const MAX: i128 = Whole::MAX.0;
/// Longer than any amount with a few leading and trailing zeros; a megabyte of zeros is no amount.
const MAX_TEXT: usize = 96;

const E18: i128 = 10_i128.pow(18);
const E19: i128 = 10_i128.pow(19);

/// A decimal number in its normal form: no zeros at the end of the fraction, no negative zero.
///
/// Equal numbers are equal values: `1.50`, `1.5` and `01.5` are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    mantissa: i128,
    scale: u8,
}

/// Why a text is no amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAmount {
    /// Not `-?digits[.digits]`.
    Grammar,
    /// More digits or decimals than any asset can have.
    TooLong,
}

/// Why an amount is none of a given asset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misfit {
    /// More decimals than the asset has.
    TooFine,
    /// More than 38 digits in the asset's smallest unit.
    TooLarge,
}

impl Decimal {
    pub const ZERO: Self = Self { mantissa: 0, scale: 0 };

    /// Reads `-?digits[.digits]` and nothing else.
    pub fn parse(text: &str) -> Result<Self, NoAmount> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = match rest.split_once('.') {
            Some((_, "")) => return Err(NoAmount::Grammar),
            Some((whole, fraction)) => (whole, fraction),
            None => (rest, ""),
        };
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(fraction) {
            return Err(NoAmount::Grammar);
        }
        if text.len() > MAX_TEXT {
            return Err(NoAmount::TooLong);
        }
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let significant = if whole.is_empty() {
            fraction.trim_start_matches('0').len()
        } else {
            whole.len() + fraction.len()
        };
        if significant > MAX_DIGITS || fraction.len() > usize::from(MAX_SCALE) {
            return Err(NoAmount::TooLong);
        }
        let mut mantissa = 0_i128;
        for digit in whole.bytes().chain(fraction.bytes()) {
            mantissa = mantissa * 10 + i128::from(digit - b'0');
        }
        let scale = u8::try_from(fraction.len()).expect("at most 18 decimals");
        Ok(Self {
            mantissa: if negative { -mantissa } else { mantissa },
            scale,
        })
    }

    #[must_use]
    pub fn is_zero(self) -> bool {
        self.mantissa == 0
    }

    #[must_use]
    pub fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        Self {
            mantissa: -self.mantissa,
            scale: self.scale,
        }
    }

    /// The number in the smallest unit of an asset of `scale`.
    pub fn to_minor(self, scale: u8) -> Result<i128, Misfit> {
        let missing = scale.checked_sub(self.scale).ok_or(Misfit::TooFine)?;
        let factor = 10_i128.checked_pow(missing.into()).ok_or(Misfit::TooLarge)?;
        let minor = self.mantissa.checked_mul(factor).ok_or(Misfit::TooLarge)?;
        if minor.unsigned_abs() > MAX.unsigned_abs() {
            Err(Misfit::TooLarge)
        } else {
            Ok(minor)
        }
    }

    /// The part before the point rounded down, and the rest in units of 10^-18.
    fn parts(self) -> (i128, i128) {
        let unit = 10_i128.pow(self.scale.into());
        let rest = self.mantissa.rem_euclid(unit) * 10_i128.pow(u32::from(MAX_SCALE - self.scale));
        (self.mantissa.div_euclid(unit), rest)
    }

    /// Whether the numbers cancel out, whatever their scales. Exact: no sum of them overflows.
    #[must_use]
    pub fn sum_to_zero(amounts: impl IntoIterator<Item = Self>) -> bool {
        let (mut whole, mut rest) = (Sum::default(), 0_i128);
        for amount in amounts {
            let (before, behind) = amount.parts();
            whole.add(before);
            rest += behind;
        }
        whole.add(rest.div_euclid(E18));
        rest.rem_euclid(E18) == 0 && whole.value() == Some(0)
    }
}

/// An exact sum of amounts: a hundred of 38 digits fit no `i128`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// In units of 10^19.
    high: i128,
    low: i128,
}

impl Sum {
    pub(crate) fn add(&mut self, amount: i128) {
        self.high += amount.div_euclid(E19);
        self.low += amount.rem_euclid(E19);
    }

    /// The sum, if an `i128` holds it.
    pub(crate) fn value(self) -> Option<i128> {
        let high = self.high + self.low.div_euclid(E19);
        high.checked_mul(E19)?.checked_add(self.low.rem_euclid(E19))
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(self.mantissa, self.scale))
    }
}

/// An amount in the smallest unit, written with all decimals of its asset.
#[must_use]
pub fn render(minor: i128, scale: u8) -> String {
    let digits = minor.unsigned_abs().to_string();
    let scale = usize::from(scale);
    let sign = if minor < 0 { "-" } else { "" };
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    // At least one digit stands before the point.
    let padded = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = padded.split_at(padded.len() - scale);
    format!("{sign}{whole}.{fraction}")
}

/// Reads an amount of a body that may be negative or zero.
pub(crate) fn any(text: &str, field: &str) -> Result<Decimal, Invalid> {
    Decimal::parse(text).map_err(|why| match why {
        NoAmount::Grammar => Invalid::new(
            codes::AMOUNT_INVALID,
            field,
            "an amount is an optional minus sign, digits, and optionally a point and more digits, like 12 or -0.50",
        ),
        NoAmount::TooLong => Invalid::new(
            codes::AMOUNT_TOO_LONG,
            field,
            "an amount has at most 38 digits, and at most 18 of them behind the point",
        ),
    })
}

/// Reads an amount that moves something.
pub(crate) fn non_zero(text: &str, field: &str) -> Result<Decimal, Invalid> {
    let amount = any(text, field)?;
    if amount.is_zero() {
        return Err(Invalid::new(
            codes::AMOUNT_ZERO,
            field,
            "the amount is zero; send one that moves something",
        ));
    }
    Ok(amount)
}

/// Reads an amount whose direction is said by the fields around it.
pub(crate) fn positive(text: &str, field: &str) -> Result<Decimal, Invalid> {
    let amount = non_zero(text, field)?;
    if amount.is_negative() {
        return Err(Invalid::new(
            codes::AMOUNT_NEGATIVE,
            field,
            "the amount is negative; the accounts of the request say the direction, so send it without the sign",
        ));
    }
    Ok(amount)
}

/// The amount in the smallest unit of an asset, or the refusal that says why not.
pub(crate) fn minor(
    amount: Decimal,
    scale: u8,
    asset: AssetCode,
    field: impl FnOnce() -> Cow<'static, str>,
) -> Result<i128, Refusal> {
    amount.to_minor(scale).map_err(|why| match why {
        Misfit::TooFine => Refusal::new(
            codes::AMOUNT_TOO_FINE,
            field(),
            format!("the amount has more decimals than {asset}, which has {scale}"),
        ),
        Misfit::TooLarge => Refusal::new(
            codes::AMOUNT_TOO_LARGE,
            field(),
            format!("the amount has more than 38 digits in the smallest unit of {asset}, which has {scale} decimals"),
        ),
    })
}

/// Several amounts of one body: one code after the other over all of them, so that the refusal does
/// not depend on which of them stands first.
pub(crate) fn minors<const N: usize>(
    amounts: [Option<Decimal>; N],
    fields: [&'static str; N],
    scale: u8,
    asset: AssetCode,
) -> Result<[Option<i128>; N], Refusal> {
    let mut out = [None; N];
    let mut refused: Option<Refusal> = None;
    for ((amount, field), out) in amounts.iter().zip(fields).zip(&mut out) {
        match amount
            .map(|amount| minor(amount, scale, asset, || field.into()))
            .transpose()
        {
            Ok(minor) => *out = minor,
            Err(refusal) if refusal.code == codes::AMOUNT_TOO_FINE => return Err(refusal),
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    refused.map_or(Ok(out), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Decimal {
        Decimal::parse(text).unwrap_or_else(|why| panic!("{text}: {why:?}"))
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in [
            "",
            "-",
            ".",
            "-.",
            "1e3",
            "1E3",
            "1_000",
            "1,000",
            ".5",
            "5.",
            "-.5",
            "+1",
            "--1",
            "NaN",
            "inf",
            "0x10",
            " 1",
            "1 ",
            "1.2.3",
            "1.-2",
            "١",
            "1\0",
            "-\u{2212}1",
            "½",
        ] {
            assert_eq!(Decimal::parse(text), Err(NoAmount::Grammar), "{text:?}");
        }
    }

    #[test]
    fn more_digits_than_any_asset_has_are_refused() {
        let nines = "9".repeat(38);
        assert_eq!(parse(&nines).to_minor(0), Ok(MAX));
        assert_eq!(parse(&format!("-{nines}")).to_minor(0), Ok(-MAX));
        assert_eq!(Decimal::parse(&format!("1{}", "0".repeat(38))), Err(NoAmount::TooLong));
        assert_eq!(Decimal::parse(&format!("1{}", "0".repeat(40))), Err(NoAmount::TooLong));
        assert_eq!(
            Decimal::parse(&format!("0.{}1", "0".repeat(18))),
            Err(NoAmount::TooLong)
        );
        assert_eq!(Decimal::parse(&"0".repeat(100)), Err(NoAmount::TooLong));
        assert_eq!(parse(&format!("1.{}", "0".repeat(30))), parse("1"));
        assert_eq!(parse(&format!("{}1", "0".repeat(50))), parse("1"));
    }

    #[test]
    fn equal_numbers_are_equal_in_any_spelling() {
        assert_eq!(parse("1.50"), parse("1.5"));
        assert_eq!(parse("007"), parse("7.000"));
        assert_eq!(parse("-0"), Decimal::ZERO);
        assert_eq!(parse("-0.000"), Decimal::ZERO);
        assert_eq!(parse("1.50").to_string(), "1.5");
        assert_eq!(parse("-0").to_string(), "0");
    }

    #[test]
    fn more_decimals_than_the_scale_are_too_fine_and_never_rounded() {
        assert_eq!(parse("1.005").to_minor(2), Err(Misfit::TooFine));
        assert_eq!(parse("1.005").to_minor(3), Ok(1_005));
        assert_eq!(parse("1.00500").to_minor(3), Ok(1_005));
        assert_eq!(parse("1").to_minor(18), Ok(E18));
        assert_eq!(parse(&"9".repeat(21)).to_minor(18), Err(Misfit::TooLarge));
        assert_eq!(parse(&"9".repeat(20)).to_minor(18), Ok(MAX - (E18 - 1)));
    }

    #[test]
    fn sums_beyond_any_integer_are_still_exact() {
        let nines = "9".repeat(38);
        let fine = "0.000000000000000001";
        let mut amounts = vec![parse(&nines); 50];
        amounts.extend(vec![parse(&format!("-{nines}")); 50]);
        assert!(Decimal::sum_to_zero(amounts.clone()));
        amounts.push(parse(fine));
        assert!(!Decimal::sum_to_zero(amounts.clone()));
        amounts.push(parse(&format!("-{fine}")));
        assert!(Decimal::sum_to_zero(amounts));
    }

    /// The naive way: digits as text, no arithmetic.
    fn naive(negative: bool, whole: &str, fraction: &str) -> String {
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let whole = if whole.is_empty() { "0" } else { whole };
        let point = if fraction.is_empty() { "" } else { "." };
        let zero = whole == "0" && fraction.is_empty();
        format!("{}{whole}{point}{fraction}", if negative && !zero { "-" } else { "" })
    }

    proptest! {
        #[test]
        fn the_normal_form_is_the_naive_one(negative: bool, whole in "[0-9]{1,19}", fraction in "[0-9]{0,18}") {
            let sign = if negative { "-" } else { "" };
            let point = if fraction.is_empty() { "" } else { "." };
            let amount = parse(&format!("{sign}{whole}{point}{fraction}"));
            prop_assert_eq!(amount.to_string(), naive(negative, &whole, &fraction));
            prop_assert_eq!(parse(&amount.to_string()), amount);
            prop_assert_eq!(amount.negated().negated(), amount);
        }

        #[test]
        fn only_the_grammar_is_read(text in "[-+0-9. eE_,]{0,12}") {
            let body = text.strip_prefix('-').unwrap_or(&text);
            let mut parts = body.split('.');
            let good = |part: Option<&str>| part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()));
            let expected = match (good(parts.next()), parts.next(), parts.next()) {
                (true, None, None) => true,
                (true, fraction @ Some(_), None) => good(fraction),
                _ => false,
            };
            prop_assert_eq!(Decimal::parse(&text).is_ok(), expected);
        }

        #[test]
        fn minor_units_render_back(minor in -MAX..=MAX, scale in 0..=MAX_SCALE) {
            let text = render(minor, scale);
            prop_assert_eq!(parse(&text).to_minor(scale), Ok(minor));
        }

        #[test]
        fn order_and_sums_are_those_of_minor_units(a in -E18..E18, b in -E18..E18, s in 0..=MAX_SCALE, t in 0..=MAX_SCALE) {
            let (x, y) = (parse(&render(a, s)), parse(&render(b, t)));
            let (m, n) = (x.to_minor(18).unwrap(), y.to_minor(18).unwrap());
            prop_assert_eq!(x.cmp(&y), m.cmp(&n));
            prop_assert_eq!(Decimal::sum_to_zero([x, y]), m + n == 0);
            let third = parse(&render(-(m + n), 18));
            prop_assert!(Decimal::sum_to_zero([x, y, third]));
        }
    }
}
