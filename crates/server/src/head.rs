//! What the headers of a request say.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName};
use http::request::Parts;
use http::{HeaderMap, StatusCode, Version};

use crate::codes;
use crate::limits::MAX_TIMEOUT_MS;
use crate::problem::{Problem, Refused};

static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
static TIMEOUT: HeaderName = HeaderName::from_static("counterfoil-timeout");

/// How a body is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    /// One JSON value a line.
    Lines,
}

/// The headers of a write.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    /// Absent where there is no `Content-Type`: fine as long as there is no body either.
    pub(crate) format: Option<Format>,
    pub(crate) key: Option<&'a str>,
    pub(crate) deadline: Option<Instant>,
}

impl<'a> Head<'a> {
    pub(crate) fn read(headers: &'a HeaderMap, now: Instant) -> Result<Self, Refused> {
        if let Some(coding) = one(headers, &CONTENT_ENCODING)?
            && !coding.eq_ignore_ascii_case("identity")
        {
            return Err(unsupported(
                "Content-Encoding",
                "bodies are sent as they are, without a content coding",
            ));
        }
        let format = one(headers, &CONTENT_TYPE)?.map(format).transpose()?;
        let key = one(headers, &IDEMPOTENCY_KEY)?;
        let deadline = one(headers, &TIMEOUT)?
            .map(timeout)
            .transpose()?
            .map(|timeout| now + timeout);
        Ok(Self { format, key, deadline })
    }
}

/// RFC 9112, section 3.2: a request of HTTP/1.1 says once which host it is for, or is answered 400.
pub(crate) fn host(parts: &Parts) -> Result<(), Refused> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => Ok(()),
        (None, _) if parts.version < Version::HTTP_11 => Ok(()),
        _ => Err(Problem::bad_request(
            codes::HOST_INVALID,
            "Host",
            "a request of HTTP/1.1 has the header Host once",
        )),
    }
}

/// Until when the caller waits, where that can be read; what is wrong with it is told in its turn.
pub(crate) fn deadline(headers: &HeaderMap, now: Instant) -> Option<Instant> {
    let value = one(headers, &TIMEOUT).ok().flatten()?;
    timeout(value).ok().map(|timeout| now + timeout)
}

/// The secret of `Authorization: Bearer …`. The pages for people also take it as the password of
/// `Basic`, which is what a browser knows how to ask for.
pub(crate) fn secret(headers: &HeaderMap, basic: bool) -> Result<Option<Cow<'_, str>>, Refused> {
    let Some(value) = one(headers, &AUTHORIZATION)? else {
        return Ok(None);
    };
    let Some((scheme, credentials)) = value.split_once(' ') else {
        return Ok(None);
    };
    let credentials = credentials.trim_start();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Ok(Some(Cow::Borrowed(credentials)));
    }
    if basic && scheme.eq_ignore_ascii_case("basic") {
        let decoded = STANDARD
            .decode(credentials)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        return Ok(decoded.and_then(|pair| {
            pair.split_once(':')
                .map(|(_, password)| Cow::Owned(password.to_owned()))
        }));
    }
    Ok(None)
}

/// A header that may be there once. Of two, a proxy and we might believe different ones.
fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, Refused> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Problem::bad_request(
            codes::HEADER_REPEATED,
            name.as_str().to_owned(),
            "the header is there twice",
        ));
    }
    match value.to_str() {
        Ok(text) => Ok(Some(text)),
        Err(_) if *name == IDEMPOTENCY_KEY => Err(Problem::bad_request(
            "key_characters",
            "key",
            "a key is made of visible ASCII characters, ! to ~",
        )),
        Err(_) => Err(Problem::bad_request(
            codes::HEADER_INVALID,
            name.as_str().to_owned(),
            "the header has bytes that are not visible ASCII",
        )),
    }
}

fn format(value: &str) -> Result<Format, Refused> {
    let (essence, parameters) = value.split_once(';').unwrap_or((value, ""));
    let essence = essence.trim();
    let format = if essence.eq_ignore_ascii_case("application/json") {
        Format::Json
    } else if essence.eq_ignore_ascii_case("application/x-ndjson") {
        Format::Lines
    } else {
        return Err(media_type());
    };
    for parameter in parameters
        .split(';')
        .map(str::trim)
        .filter(|parameter| !parameter.is_empty())
    {
        let charset = parameter
            .split_once('=')
            .filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset"));
        if let Some((_, charset)) = charset
            && !charset.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
        {
            return Err(unsupported("Content-Type", "JSON is UTF-8"));
        }
    }
    Ok(format)
}

pub(crate) fn media_type() -> Refused {
    unsupported(
        "Content-Type",
        "send Content-Type: application/json, or application/x-ndjson for one intent a line at /intents",
    )
}

fn unsupported(field: &'static str, detail: &'static str) -> Refused {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, codes::MEDIA_TYPE, field, detail)
}

fn timeout(value: &str) -> Result<Duration, Refused> {
    let digits = !value.is_empty() && value.len() <= 6 && value.bytes().all(|b| b.is_ascii_digit());
    match value.parse() {
        Ok(millis) if digits && (1..=MAX_TIMEOUT_MS).contains(&millis) => Ok(Duration::from_millis(millis)),
        _ => Err(Problem::bad_request(
            codes::TIMEOUT_INVALID,
            "Counterfoil-Timeout",
            format!("a timeout is a whole number of milliseconds from 1 to {MAX_TIMEOUT_MS}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn error(pairs: &[(&'static str, &'static str)]) -> Problem {
        *Head::read(&headers(pairs), Instant::now()).unwrap_err()
    }

    #[test]
    fn json_and_ndjson_are_taken_in_utf_8_only() {
        let format = |value| Head::read(&headers(&[("content-type", value)]), Instant::now()).map(|head| head.format);
        assert_eq!(format("application/json").unwrap(), Some(Format::Json));
        assert_eq!(
            format("Application/JSON; charset=\"UTF-8\"").unwrap(),
            Some(Format::Json)
        );
        assert_eq!(format("application/x-ndjson").unwrap(), Some(Format::Lines));
        for bad in [
            "text/plain",
            "application/json; charset=latin1",
            "application/jsonx",
            "",
            "application/xml",
        ] {
            assert_eq!(format(bad).unwrap_err().status, 415, "{bad}");
        }
    }

    #[test]
    fn a_content_coding_is_refused() {
        assert_eq!(error(&[("content-encoding", "gzip")]).status, 415);
        assert!(Head::read(&headers(&[("content-encoding", "identity")]), Instant::now()).is_ok());
    }

    #[test]
    fn two_keys_in_the_headers_are_an_error_even_if_they_are_the_same() {
        let problem = error(&[("idempotency-key", "a"), ("idempotency-key", "a")]);
        assert_eq!(
            (problem.status.as_u16(), &*problem.code, &*problem.field),
            (400, "header_repeated", "idempotency-key")
        );
    }

    #[test]
    fn a_key_that_is_not_ascii_is_named_as_such() {
        let mut map = HeaderMap::new();
        map.append("idempotency-key", HeaderValue::from_bytes("clé".as_bytes()).unwrap());
        assert_eq!(Head::read(&map, Instant::now()).unwrap_err().code, "key_characters");
    }

    #[test]
    fn a_timeout_is_a_whole_number_of_milliseconds_in_bounds() {
        let now = Instant::now();
        let head = headers(&[("counterfoil-timeout", "1500")]);
        assert_eq!(
            Head::read(&head, now).unwrap().deadline,
            Some(now + Duration::from_millis(1_500))
        );
        for bad in ["0", "600001", "-1", "1.5", "1s", "", "+5", "9999999999"] {
            assert_eq!(error(&[("counterfoil-timeout", bad)]).code, "timeout_invalid", "{bad}");
        }
    }

    #[test]
    fn the_secret_is_a_bearer_token_and_on_pages_a_password_too() {
        let of = |value: &'static str, basic| {
            secret(&headers(&[("authorization", value)]), basic)
                .unwrap()
                .map(Cow::into_owned)
        };
        assert_eq!(of("Bearer abc", false).as_deref(), Some("abc"));
        assert_eq!(of("bearer  abc", false).as_deref(), Some("abc"));
        assert_eq!(of("Basic YTpiOmM=", false), None);
        assert_eq!(of("Basic YTpiOmM=", true).as_deref(), Some("b:c"));
        assert_eq!(of("abc", true), None);
        assert_eq!(secret(&HeaderMap::new(), true).unwrap(), None);
        let twice = headers(&[("authorization", "Bearer a"), ("authorization", "Bearer b")]);
        assert_eq!(secret(&twice, false).unwrap_err().code, "header_repeated");
    }
}
