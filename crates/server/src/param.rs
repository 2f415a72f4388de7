//! Parameters: of the path, of the query, and cursors.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::codes;
use crate::limits::PAGE;
use crate::problem::{Problem, Refused};

/// Everything but the characters that RFC 3986 never gives a meaning.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A segment of a path as we write it into links.
pub(crate) fn encode(segment: &str) -> String {
    utf8_percent_encode(segment, SEGMENT).to_string()
}

/// A segment of a path as its sender meant it.
pub(crate) fn decode<'a>(segment: &'a str, name: &'static str) -> Result<Cow<'a, str>, Refused> {
    let text = percent_decode_str(segment).decode_utf8().map_err(|_| {
        Problem::bad_request(
            codes::URL_ENCODING,
            name,
            "the address is percent-encoded UTF-8; what it decodes to is none",
        )
    })?;
    if text.contains('\0') {
        // PostgreSQL keeps none in text, so nothing can be called that.
        return Err(Problem::bad_request(codes::TEXT_NUL, name, "a text has no NUL in it"));
    }
    Ok(text)
}

/// An id in a path. What cannot be an id names nothing, so it is 404 and not 400.
pub(crate) fn id(segment: &str, what: &'static str) -> Result<Uuid, Refused> {
    match segment.len() {
        36 => Uuid::try_parse(segment).map_err(|_| Problem::not_found(what)),
        _ => Err(Problem::not_found(what)),
    }
}

/// The parameters of a query, each known to the route and there once.
#[derive(Debug)]
pub(crate) struct Query<'a>(Vec<(&'static str, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(crate) fn read(query: Option<&'a str>, known: &'static [&'static str]) -> Result<Self, Refused> {
        let mut found: Vec<(&'static str, Cow<'a, str>)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name, "query")?;
            let Some(known) = known.iter().find(|known| **known == name) else {
                return Err(unknown(name.into_owned(), known));
            };
            if found.iter().any(|(before, _)| before == known) {
                return Err(Problem::bad_request(
                    codes::QUERY_REPEATED,
                    *known,
                    "the parameter is there twice",
                ));
            }
            // A plus is a plus: times carry one in their offset, and this is no HTML form.
            found.push((known, decode(value, known)?));
        }
        Ok(Self(found))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value.as_ref())
    }

    pub(crate) fn time(&self, name: &'static str) -> Result<Option<Timestamp>, Refused> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match counterfoil_intent::time(text) {
            Some(time) => Ok(Some(time)),
            None => Err(Problem::bad_request(
                codes::QUERY_TIME,
                name,
                counterfoil_intent::A_TIME,
            )),
        }
    }

    /// Rows of a page.
    pub(crate) fn limit(&self, most: u32) -> Result<u32, Refused> {
        let Some(text) = self.get("limit") else {
            return Ok(PAGE.min(most));
        };
        let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(limit) if digits && (1..=most).contains(&limit) => Ok(limit),
            _ => Err(Problem::bad_request(
                codes::QUERY_LIMIT,
                "limit",
                format!("limit is a whole number from 1 to {most}"),
            )),
        }
    }

    /// Where a list goes on.
    pub(crate) fn cursor(&self) -> Result<Option<String>, Refused> {
        self.get("cursor").map(open_cursor).transpose()
    }
}

fn unknown(name: String, known: &[&str]) -> Refused {
    let detail = match known {
        [] => "this route has no query parameters".to_owned(),
        known => format!("the query parameters here are {}", known.join(", ")),
    };
    Problem::bad_request(codes::QUERY_UNKNOWN, name, detail)
}

/// A version, so that a cursor handed out by an older server is never misread by a newer one.
const CURSOR: &str = "1:";

/// Hides the position of a keyset page: callers hand it back as they got it.
pub(crate) fn seal_cursor(position: &str) -> String {
    URL_SAFE_NO_PAD.encode(format!("{CURSOR}{position}"))
}

fn open_cursor(text: &str) -> Result<String, Refused> {
    let position = URL_SAFE_NO_PAD
        .decode(text)
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok());
    match position.as_deref().and_then(|position| position.strip_prefix(CURSOR)) {
        Some(position) => Ok(position.to_owned()),
        None => Err(bad_cursor()),
    }
}

pub(crate) fn bad_cursor() -> Refused {
    Problem::bad_request(
        codes::QUERY_CURSOR,
        "cursor",
        "the cursor is not one that this route handed out",
    )
}

/// Puts what the path says into a body of fields side by side. A body may repeat it, if it says
/// the same.
pub(crate) fn merge(raw: &RawValue, field: &'static str, value: &str) -> Result<Box<RawValue>, Refused> {
    let body = raw.get().trim_start();
    let Some(members) = body.strip_prefix('{') else {
        return Err(Problem::bad_request("body_invalid", "", "the body is a JSON object"));
    };
    if let Some(said) = member(raw, field) {
        let same = serde_json::from_str::<Cow<'_, str>>(said.get()).is_ok_and(|said| said == value);
        return if same {
            Ok(raw.to_owned())
        } else {
            Err(Problem::bad_request(
                codes::PATH_CONFLICT,
                field,
                "the path and the body say different things",
            ))
        };
    }
    let empty = members.trim_start().starts_with('}');
    let mut merged = Vec::with_capacity(body.len() + field.len() + value.len() + 8);
    merged.extend_from_slice(b"{\"");
    merged.extend_from_slice(field.as_bytes());
    merged.extend_from_slice(b"\":");
    crate::json::string(&mut merged, value);
    if !empty {
        merged.push(b',');
    }
    merged.extend_from_slice(members.as_bytes());
    let merged = String::from_utf8(merged).expect("made of text");
    Ok(RawValue::from_string(merged).expect("an object with one member more is JSON"))
}

/// A member of an object, without reading the others.
fn member<'a>(raw: &'a RawValue, wanted: &str) -> Option<&'a RawValue> {
    struct Find<'w>(&'w str);
    impl<'de> serde::de::Visitor<'de> for Find<'_> {
        type Value = Option<&'de RawValue>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some((name, value)) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
                if name == self.0 {
                    found = Some(value);
                }
            }
            Ok(found)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(raw.get());
    serde::Deserializer::deserialize_map(&mut reader, Find(wanted))
        .ok()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn what_the_path_says_is_put_into_the_body() {
        assert_eq!(
            merge(&raw(r#"{"amount":"1"}"#), "hold", "h-1").unwrap().get(),
            r#"{"hold":"h-1","amount":"1"}"#
        );
        assert_eq!(merge(&raw(" { } "), "hold", "h").unwrap().get(), r#"{"hold":"h" }"#);
        assert_eq!(
            merge(&raw("{}"), "account", "a\"b").unwrap().get(),
            r#"{"account":"a\"b"}"#
        );
    }

    #[test]
    fn a_body_that_says_the_same_is_left_and_another_is_a_conflict() {
        let same = raw(r#"{"hold":"\u0068","x":1}"#);
        assert_eq!(merge(&same, "hold", "h").unwrap().get(), same.get());
        assert_eq!(merge(&same, "hold", "g").unwrap_err().code, "path_conflict");
        assert_eq!(
            merge(&raw(r#"{"hold":1}"#), "hold", "1").unwrap_err().code,
            "path_conflict"
        );
        assert_eq!(merge(&raw("[]"), "hold", "h").unwrap_err().code, "body_invalid");
    }

    #[test]
    fn unknown_and_repeated_query_parameters_are_errors() {
        let known = &["limit", "cursor"];
        assert_eq!(Query::read(Some("page=2"), known).unwrap_err().field, "page");
        assert_eq!(
            Query::read(Some("limit=2&limit=2"), known).unwrap_err().code,
            "query_repeated"
        );
        assert_eq!(Query::read(Some("limit=%ff"), known).unwrap_err().code, "url_encoding");
        assert_eq!(
            Query::read(Some("x"), &[]).unwrap_err().detail,
            "this route has no query parameters"
        );
        assert!(Query::read(Some(""), &[]).is_ok());
        assert!(Query::read(None, &[]).is_ok());
    }

    #[test]
    fn a_limit_is_a_whole_number_in_bounds() {
        for bad in ["", "0", "1001", "-1", "+1", "1.0", "1e2", "ten", "99999999999"] {
            let query = format!("limit={bad}");
            let query = Query::read(Some(&query), &["limit"]).unwrap();
            assert_eq!(query.limit(1_000).unwrap_err().code, "query_limit", "{bad}");
        }
        assert_eq!(
            Query::read(Some("limit=1000"), &["limit"])
                .unwrap()
                .limit(1_000)
                .unwrap(),
            1_000
        );
        assert_eq!(Query::read(None, &["limit"]).unwrap().limit(1_000).unwrap(), 100);
    }

    #[test]
    fn a_plus_in_a_time_is_its_offset() {
        let query = Query::read(Some("as_of=2026-03-01T12:00:00+02:00"), &["as_of"]).unwrap();
        assert_eq!(
            query.time("as_of").unwrap(),
            Some("2026-03-01T10:00:00Z".parse().unwrap())
        );
        for bad in [
            "2026-03-01",
            "",
            "now",
            "-009999-01-02T00:00:00Z",
            "0000-12-31T00:00:00Z",
            "2026-03-01T12:00:00",
        ] {
            let query = format!("as_of={bad}");
            let query = Query::read(Some(&query), &["as_of"]).unwrap();
            assert_eq!(query.time("as_of").unwrap_err().code, "query_time", "{bad}");
        }
    }

    #[test]
    fn a_cursor_comes_back_as_it_was_handed_out() {
        let sealed = seal_cursor("Grüße/1");
        assert!(
            sealed
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        );
        let text = format!("cursor={sealed}");
        assert_eq!(
            Query::read(Some(&text), &["cursor"])
                .unwrap()
                .cursor()
                .unwrap()
                .as_deref(),
            Some("Grüße/1")
        );
        for bad in ["", "x", "!!", "MjphYmM"] {
            let text = format!("cursor={bad}");
            assert_eq!(
                Query::read(Some(&text), &["cursor"])
                    .unwrap()
                    .cursor()
                    .unwrap_err()
                    .code,
                "query_cursor"
            );
        }
    }

    #[test]
    fn segments_decode_what_they_encode() {
        let code = "cash/till #1 ü%";
        assert_eq!(decode(&encode(code), "account").unwrap(), code);
        assert_eq!(decode("%ff", "account").unwrap_err().code, "url_encoding");
        assert_eq!(decode("a%00b", "account").unwrap_err().code, "text_nul");
    }
}
