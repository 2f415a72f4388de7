//! Free text and metadata of a body: what PostgreSQL can store, and nothing silently altered.

use counterfoil_intent::Invalid;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::codes;

/// The longest description or note, in bytes.
pub const MAX_TEXT: usize = 1024;
/// The longest metadata, in bytes as it is sent.
pub const MAX_METADATA: usize = 16 * 1024;

/// Reads a description or note. Empty is absent.
pub(crate) fn text(text: Option<&str>, field: &str) -> Result<Option<Box<str>>, Invalid> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if text.contains('\0') {
        return Err(nul(field));
    }
    if text.len() > MAX_TEXT {
        return Err(Invalid::new(
            codes::TEXT_TOO_LONG,
            field,
            format!("the text has {} bytes; {MAX_TEXT} is the most", text.len()),
        ));
    }
    Ok(Some(text.into()))
}

fn nul(field: &str) -> Invalid {
    Invalid::new(
        codes::TEXT_NUL,
        field,
        "the text contains the character U+0000, which cannot be stored",
    )
}

/// Reads metadata into its normal form: keys sorted, no white space. An empty object is absent.
pub(crate) fn metadata(raw: Option<&RawValue>, field: &str) -> Result<Option<Box<str>>, Invalid> {
    let Some(raw) = raw else { return Ok(None) };
    let invalid = |message: String| Invalid::new(codes::METADATA_INVALID, field, message);
    if raw.get().len() > MAX_METADATA {
        return Err(Invalid::new(
            codes::METADATA_TOO_LARGE,
            field,
            format!("the metadata has {} bytes; {MAX_METADATA} is the most", raw.get().len()),
        ));
    }
    let mut value = counterfoil_intent::json(raw.get()).map_err(|error| {
        // A lone surrogate, a number beyond any float, an object nested too deeply, a member twice.
        invalid(format!("the metadata cannot be read: {error}"))
    })?;
    let Value::Object(members) = &value else {
        return Err(invalid("the metadata is not a JSON object".to_owned()));
    };
    if members.is_empty() {
        return Ok(None);
    }
    if counterfoil_intent::has_nul(&value) {
        return Err(nul(field));
    }
    if let Some(number) = numbers(raw.get()).find(|number| !is_exact(number)) {
        return Err(invalid(format!(
            "the number {number:.60} cannot be kept exactly; write it as a string"
        )));
    }
    value.sort_all_objects();
    Ok(Some(value.to_string().into()))
}

/// The numbers of a valid JSON text, as they are written.
fn numbers(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit())?;
            rest = &rest[start..];
            if rest.starts_with('"') {
                rest = after_string(rest);
                continue;
            }
            let end = rest
                .find(|c: char| !matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E'))
                .unwrap_or(rest.len());
            let (number, tail) = rest.split_at(end);
            rest = tail;
            return Some(number);
        }
    })
}

/// What follows the JSON string at the beginning of `json`.
fn after_string(json: &str) -> &str {
    let mut escaped = false;
    for (i, byte) in json.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return &json[i + 1..],
            _ => {}
        }
    }
    ""
}

/// Whether the number survives being read and written again. serde_json keeps 64 bits; what needs
/// more would be stored as another number.
fn is_exact(number: &str) -> bool {
    let read: Result<serde_json::Number, _> = serde_json::from_str(number);
    read.is_ok_and(|read| parts(&read.to_string()) == parts(number))
}

/// Sign, digits without zeros at either end, and the power of ten of the last digit.
fn parts(number: &str) -> Option<(bool, String, i64)> {
    let (negative, rest) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number),
    };
    let (mantissa, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let kept = digits.trim_end_matches('0');
    if kept.is_empty() {
        return Some((false, String::new(), 0));
    }
    let dropped = i64::try_from(digits.len() - kept.len()).ok()?;
    let exponent = exponent
        .parse::<i64>()
        .ok()?
        .checked_sub(i64::try_from(fraction.len()).ok()?)?;
    Some((
        negative,
        kept.trim_start_matches('0').to_owned(),
        exponent.checked_add(dropped)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Option<Box<str>>, Invalid> {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        metadata(Some(&raw), "metadata")
    }

    #[test]
    fn metadata_in_another_order_or_spacing_is_the_same() {
        assert_eq!(
            read(r#"{"b":1, "a":{"d":[], "c":0.10}}"#),
            read(r#"{"a":{"c":0.1,"d":[]},"b":1}"#)
        );
        assert_eq!(read("{}"), Ok(None));
    }

    #[test]
    fn numbers_that_would_be_altered_are_refused() {
        for good in [
            "1",
            "-7",
            "0.1",
            "1.50",
            "1e5",
            "0",
            "-0.0",
            "18446744073709551615",
            "123456.789",
            "1E-7",
        ] {
            assert!(read(&format!(r#"{{"n":{good}}}"#)).is_ok(), "{good}");
        }
        for bad in [
            "18446744073709551617",
            "0.1234567890123456789012",
            "1e-400",
            "3.00000000000000000001",
        ] {
            let json = format!(r#"{{"a":"\"1e99","n":[{bad}]}}"#);
            assert_eq!(read(&json).unwrap_err().code, codes::METADATA_INVALID, "{bad}");
        }
        assert_eq!(read(r#"{"n":1e400}"#).unwrap_err().code, codes::METADATA_INVALID);
    }

    #[test]
    fn nul_and_lone_surrogates_are_refused_wherever_they_are() {
        for json in [r#"{"a":"\u0000"}"#, r#"{"a\u0000":1}"#, r#"{"a":[{"b":"x\u0000"}]}"#] {
            assert_eq!(read(json).unwrap_err().code, codes::TEXT_NUL, "{json}");
        }
        // An escaped backslash before u0000 is no NUL.
        assert!(read(r#"{"a":"\\u0000"}"#).is_ok());
        assert_eq!(read(r#"{"a":"\ud800"}"#).unwrap_err().code, codes::METADATA_INVALID);
        assert_eq!(text(Some("a\0"), "note").unwrap_err().code, codes::TEXT_NUL);
    }

    #[test]
    fn a_member_that_is_there_twice_is_refused() {
        let invalid = read(r#"{"a":{"b":1,"b":2}}"#).unwrap_err();
        assert_eq!(invalid.code, codes::METADATA_INVALID);
        assert!(invalid.message.contains("`b` is there twice"), "{}", invalid.message);
    }

    #[test]
    fn an_empty_text_is_absent_and_a_long_one_refused() {
        assert_eq!(text(Some(""), "note"), Ok(None));
        assert!(text(Some(&"x".repeat(MAX_TEXT)), "note").is_ok());
        assert_eq!(
            text(Some(&"x".repeat(MAX_TEXT + 1)), "note").unwrap_err().code,
            codes::TEXT_TOO_LONG
        );
        let json = format!(r#"{{"a":"{}"}}"#, "x".repeat(MAX_METADATA));
        assert_eq!(read(&json).unwrap_err().code, codes::METADATA_TOO_LARGE);
        assert_eq!(read("[]").unwrap_err().code, codes::METADATA_INVALID);
    }
}
