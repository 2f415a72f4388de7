//! A body becomes intents.

use std::time::Instant;

use counterfoil_intent::{Intent, Invalid, Kinds};
use counterfoil_pg::TenantId;
use http::StatusCode;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::codes;
use crate::head::Format;
use crate::limits::Limits;
use crate::problem::{Problem, Refused};

/// How the intents came, which is how the answers go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    One,
    Array,
    Lines,
}

/// The JSON values of a request, not read yet but for finding their ends.
#[derive(Debug)]
pub(crate) struct Items<'a> {
    pub(crate) shape: Shape,
    pub(crate) values: Vec<Result<&'a RawValue, Invalid>>,
}

/// What every intent of a request shares.
pub(crate) struct Reader<'a> {
    pub(crate) kinds: &'a Kinds,
    pub(crate) limits: &'a Limits,
    pub(crate) tenant: TenantId,
    pub(crate) key: Option<&'a str>,
    pub(crate) deadline: Option<Instant>,
}

impl Reader<'_> {
    /// `{"key", "kind", "body"}` or `{"key", "all": […]}`.
    pub(crate) fn intent(&self, raw: &RawValue) -> Result<Intent, Invalid> {
        let intent = self.kinds.intent(self.limits.intent, self.tenant, self.key, raw)?;
        Ok(intent.with_deadline(self.deadline))
    }

    /// The fields of one kind side by side.
    pub(crate) fn intent_of(&self, kind: &str, raw: &RawValue) -> Result<Intent, Invalid> {
        let intent = self
            .kinds
            .intent_of(self.limits.intent, self.tenant, self.key, kind, raw)?;
        Ok(intent.with_deadline(self.deadline))
    }
}

pub(crate) fn utf8(body: &[u8]) -> Result<&str, Refused> {
    std::str::from_utf8(body).map_err(|error| {
        let detail = format!("the body is not UTF-8 from byte {} on", error.valid_up_to());
        Problem::bad_request(codes::BODY_ENCODING, "", detail)
    })
}

/// One JSON value and nothing after it.
pub(crate) fn value(body: &str) -> Result<&RawValue, Refused> {
    serde_json::from_str(body).map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> Refused {
    Problem::bad_request(codes::JSON_INVALID, "", format!("the body is not JSON: {error}"))
}

/// Splits a body into its intents.
pub(crate) fn split<'a>(body: &'a str, format: Format, limits: &Limits) -> Result<Items<'a>, Refused> {
    match format {
        Format::Lines => lines(body, limits),
        Format::Json if body.trim_start().starts_with('[') => array(body, limits),
        Format::Json => Ok(Items {
            shape: Shape::One,
            values: vec![Ok(value(body)?)],
        }),
    }
}

fn array<'a>(body: &'a str, limits: &Limits) -> Result<Items<'a>, Refused> {
    let mut reader = serde_json::Deserializer::from_str(body);
    let (values, count) = serde::Deserializer::deserialize_seq(&mut reader, Bounded(limits.items))
        .and_then(|found| reader.end().map(|()| found))
        .map_err(|error| not_json(&error))?;
    if count > limits.items {
        return Err(too_many(count, limits));
    }
    Ok(Items {
        shape: Shape::Array,
        values: values.into_iter().map(Ok).collect(),
    })
}

/// A line that is not JSON spoils nothing but itself: unlike in an array it is plain where the next
/// intent begins.
fn lines<'a>(body: &'a str, limits: &Limits) -> Result<Items<'a>, Refused> {
    let mut values = Vec::new();
    let mut count = 0;
    for line in body.split('\n').filter(|line| !line.trim_ascii().is_empty()) {
        count += 1;
        if count > limits.items {
            continue;
        }
        values.push(serde_json::from_str::<&RawValue>(line).map_err(|error| {
            let mut message = error.to_string();
            if let Some(at) = message.rfind(" at line ") {
                message.truncate(at);
            }
            Invalid::new(
                codes::JSON_INVALID,
                "",
                format!("the line is not JSON: {message} at column {}", error.column()),
            )
        }));
    }
    if count > limits.items {
        return Err(too_many(count, limits));
    }
    Ok(Items {
        shape: Shape::Lines,
        values,
    })
}

fn too_many(count: usize, limits: &Limits) -> Refused {
    let detail = format!("the request has {count} items; {} is the most", limits.items);
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, codes::TOO_MANY_ITEMS, "", detail)
}

/// Keeps up to so many elements and counts the rest: eight megabytes of `0,` are four million.
struct Bounded(usize);

impl<'de> Visitor<'de> for Bounded {
    type Value = (Vec<&'de RawValue>, usize);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut values = Vec::new();
        while values.len() < self.0 {
            let Some(value) = seq.next_element()? else { break };
            values.push(value);
        }
        let mut count = values.len();
        // After the end of a shorter array this asks once more, and is told once more.
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((values, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split_of(body: &str, format: Format) -> Result<Items<'_>, Refused> {
        let limits = Limits {
            items: 3,
            ..Limits::default()
        };
        split(body, format, &limits)
    }

    fn texts(items: &Items<'_>) -> Vec<String> {
        items
            .values
            .iter()
            .map(|v| {
                v.as_ref()
                    .map_or_else(|e| e.code.to_owned(), |raw| raw.get().to_owned())
            })
            .collect()
    }

    #[test]
    fn one_array_and_lines_are_told_apart() {
        let one = split_of(" {\"a\":1}\n", Format::Json).unwrap();
        assert_eq!((one.shape, texts(&one)), (Shape::One, vec!["{\"a\":1}".to_owned()]));
        let array = split_of(" [{}, {} ]", Format::Json).unwrap();
        assert_eq!((array.shape, texts(&array)), (Shape::Array, vec!["{}".to_owned(); 2]));
        let empty = split_of("[]", Format::Json).unwrap();
        assert_eq!((empty.shape, texts(&empty)), (Shape::Array, vec![]));
        let lines = split_of("{}\r\n\n  \n{\"b\":[1]}", Format::Lines).unwrap();
        assert_eq!(
            (lines.shape, texts(&lines)),
            (Shape::Lines, vec!["{}".to_owned(), "{\"b\":[1]}".to_owned()])
        );
    }

    #[test]
    fn more_items_than_allowed_are_413_and_counted() {
        let problem = split_of("[0,0,0,0,0]", Format::Json).unwrap_err();
        assert_eq!((problem.status.as_u16(), &*problem.code), (413, "too_many_items"));
        assert_eq!(problem.detail, "the request has 5 items; 3 is the most");
        assert_eq!(
            split_of("0\n0\n0\n0", Format::Lines).unwrap_err().code,
            "too_many_items"
        );
        assert_eq!(split_of("[0,0,0]", Format::Json).unwrap().values.len(), 3);
    }

    #[test]
    fn truncated_json_and_text_after_it_are_400() {
        for bad in [
            "",
            " ",
            "{",
            "{\"a\":",
            "[{}",
            "[{},",
            "{} {}",
            "[] []",
            "[{}}",
            "nul",
            "{\"a\":1,}",
            "'a'",
        ] {
            let problem = split_of(bad, Format::Json).unwrap_err();
            assert_eq!(
                (problem.status.as_u16(), &*problem.code),
                (400, "json_invalid"),
                "{bad:?}"
            );
        }
    }

    #[test]
    fn a_line_that_is_not_json_spoils_only_itself() {
        let items = split_of("{}\n{\"a\":\n{}", Format::Lines).unwrap();
        assert_eq!(texts(&items), ["{}", "json_invalid", "{}"]);
    }

    #[test]
    fn deep_nesting_is_split_without_recursion() {
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let body = format!("{{\"key\":\"k\",\"kind\":\"x\",\"body\":{deep}}}");
        assert_eq!(split_of(&body, Format::Json).unwrap().values.len(), 1);
        assert_eq!(split_of(&deep, Format::Json).unwrap().values.len(), 1);
    }

    #[test]
    fn invalid_utf_8_is_400() {
        assert_eq!(utf8(b"{\"a\":\"\xff\"}").unwrap_err().code, "body_encoding");
        // A surrogate on its own has no UTF-8 form either.
        assert_eq!(utf8(b"\xed\xa0\x80").unwrap_err().code, "body_encoding");
    }
}
