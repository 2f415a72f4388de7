//! One event: read, checked and brought into its normal form, once.

use std::borrow::Cow;
use std::time::Duration;

use counterfoil_intent::{Invalid, Kinds};
use counterfoil_pg::TenantId;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::actor::Actors;
use crate::codes;
use crate::id::{self, Name};
use crate::import::Entry;

/// The longest name of a stream, in bytes.
const MAX_STREAM: usize = 63;
/// The longest subject or actor, in bytes: a subject is part of an index, whose rows have 2,700 at the most.
const MAX_TEXT: usize = 1_024;

/// What an event may be. They are stated in `docs/reference/events.md`.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one event as it is sent: 64 KiB.
    pub bytes: usize,
    /// How late it may come: 30 days. `None`: however late, for imports.
    pub late: Option<Duration>,
    /// How far ahead of the server's clock its time may be: an hour.
    pub ahead: Duration,
    /// How far apart the time in its id and its own time may be: a day.
    pub apart: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 64 << 10,
            late: Some(Duration::from_secs(30 * 86_400)),
            ahead: Duration::from_secs(3_600),
            apart: Duration::from_secs(86_400),
        }
    }
}

/// An event in its normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub(crate) tenant: TenantId,
    pub(crate) id: Uuid,
    pub(crate) at: Timestamp,
    pub(crate) stream: Box<str>,
    pub(crate) subject: Box<str>,
    pub(crate) actor: Option<i64>,
    pub(crate) properties: Option<Box<str>>,
}

impl Event {
    /// The identity under which it is stored.
    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(expecting = "an event, which is a JSON object")]
struct Body<'a> {
    #[serde(borrow)]
    stream: Cow<'a, str>,
    #[serde(borrow)]
    subject: Cow<'a, str>,
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    actor: Option<Cow<'a, str>>,
    #[serde(borrow)]
    properties: Option<&'a RawValue>,
}

/// Reads the events of one tenant, as of one moment of the server's clock.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub limits: Limits,
    pub actors: &'a Actors,
    pub tenant: TenantId,
    pub now: Timestamp,
}

impl Reader<'_> {
    /// Reads an event as it stands in a request.
    ///
    /// # Errors
    /// What is wrong with it, with a code of `docs/reference/events.md`.
    pub fn read(&self, raw: &RawValue) -> Result<Event, Invalid> {
        if raw.get().len() > self.limits.bytes {
            return Err(Invalid::new(
                codes::EVENT_TOO_LARGE,
                "",
                format!(
                    "the event has {} bytes; {} is the most",
                    raw.get().len(),
                    self.limits.bytes
                ),
            ));
        }
        let body: Body<'_> = Kinds::read_object(raw)?;
        let stream = stream(&body.stream)?;
        let subject = text(&body.subject, codes::SUBJECT_INVALID, "subject")?;
        let actor = match &body.actor {
            None => None,
            Some(actor) => {
                text(actor, codes::ACTOR_INVALID, "actor")?;
                Some(self.actors.hash(self.tenant, actor))
            }
        };
        let (id, at) = self.identity(&body.id, body.at.as_deref())?;
        Ok(Event {
            tenant: self.tenant,
            id,
            at,
            stream: stream.into(),
            subject: subject.into(),
            actor,
            properties: properties(body.properties)?,
        })
    }

    /// A line of an access log.
    pub(crate) fn entry(&self, stream_name: &str, entry: &Entry, id: &str) -> Result<Event, Invalid> {
        let stream = stream(stream_name)?;
        let subject = text(&entry.path, codes::SUBJECT_INVALID, "subject")?;
        let actor = text(&entry.address, codes::ACTOR_INVALID, "actor")?;
        self.check_time(entry.at)?;
        let mut properties = serde_json::Map::new();
        properties.insert("method".to_owned(), entry.method.as_str().into());
        properties.insert("status".to_owned(), entry.status.into());
        let optional = [
            ("query", entry.query.as_deref().map(Value::from)),
            ("bytes", entry.bytes.map(Value::from)),
            ("referrer", entry.referrer.as_deref().map(Value::from)),
            ("agent", entry.agent.as_deref().map(Value::from)),
        ];
        for (name, value) in optional {
            properties.extend(value.map(|value| (name.to_owned(), value)));
        }
        let properties = Value::Object(properties);
        if counterfoil_intent::has_nul(&properties) {
            let message = "the line contains the character U+0000, which cannot be stored";
            return Err(Invalid::new(codes::PROPERTIES_INVALID, "properties", message));
        }
        let id = match id::read(id) {
            Some(Name::Undated(name)) => name.at(entry.at),
            _ => None,
        };
        let too_old = || Invalid::new(codes::EVENT_TOO_OLD, "at", "times before 1970 cannot be stored");
        Ok(Event {
            tenant: self.tenant,
            id: id.ok_or_else(too_old)?,
            at: entry.at,
            stream: stream.into(),
            subject: subject.into(),
            actor: Some(self.actors.hash(self.tenant, actor)),
            properties: Some(properties.to_string().into()),
        })
    }

    fn identity(&self, id: &str, at: Option<&str>) -> Result<(Uuid, Timestamp), Invalid> {
        let name = id::read(id).ok_or_else(|| {
            Invalid::new(
                codes::EVENT_ID_INVALID,
                "id",
                "an id is a UUID, or 1 to 255 visible ASCII characters",
            )
        })?;
        let at = at.map(time).transpose()?;
        match (name, at) {
            (Name::Undated(_), None) => Err(Invalid::new(
                codes::EVENT_TIME_MISSING,
                "at",
                "an event needs its time, unless its id is a UUIDv7, which carries one",
            )),
            (Name::Dated(id, dated), at) => {
                let at = at.unwrap_or(dated);
                self.check_apart(dated, at)?;
                self.check_time(at)?;
                Ok((id, at))
            }
            (Name::Undated(name), Some(at)) => {
                self.check_time(at)?;
                // Only an import, which has no limit of lateness, gets so far with a time before 1970.
                let id = name
                    .at(at)
                    .ok_or_else(|| Invalid::new(codes::EVENT_TOO_OLD, "at", "times before 1970 cannot be stored"))?;
                Ok((id, at))
            }
        }
    }

    fn check_apart(&self, dated: Timestamp, at: Timestamp) -> Result<(), Invalid> {
        let apart = at.duration_since(dated).abs();
        if apart > signed(self.limits.apart) {
            return Err(Invalid::new(
                codes::EVENT_TIMES_DIFFER,
                "at",
                format!(
                    "the time of the event and the one in its id, {dated}, are further apart than {} hours",
                    self.limits.apart.as_secs() / 3_600
                ),
            ));
        }
        Ok(())
    }

    fn check_time(&self, at: Timestamp) -> Result<(), Invalid> {
        let age = self.now.duration_since(at);
        if let Some(late) = self.limits.late
            && age > signed(late)
        {
            return Err(Invalid::new(
                codes::EVENT_TOO_OLD,
                "at",
                format!(
                    "the event is more than {} days old; what is older is imported",
                    late.as_secs() / 86_400
                ),
            ));
        }
        if -age > signed(self.limits.ahead) {
            return Err(Invalid::new(
                codes::EVENT_AHEAD,
                "at",
                format!(
                    "the event is more than {} minutes ahead of the server's clock; set the caller's clock",
                    self.limits.ahead.as_secs() / 60
                ),
            ));
        }
        Ok(())
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn stream(text: &str) -> Result<&str, Invalid> {
    let fine = (1..=MAX_STREAM).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'));
    fine.then_some(text).ok_or_else(|| {
        Invalid::new(
            codes::STREAM_INVALID,
            "stream",
            format!("a stream is named by 1 to {MAX_STREAM} of A to Z, a to z, 0 to 9, `.`, `_` and `-`"),
        )
    })
}

fn text<'a>(text: &'a str, code: &'static str, field: &str) -> Result<&'a str, Invalid> {
    let fine = (1..=MAX_TEXT).contains(&text.len()) && !text.contains('\0');
    fine.then_some(text).ok_or_else(|| {
        Invalid::new(
            code,
            field,
            format!("a {field} has 1 to {MAX_TEXT} bytes of UTF-8, and no character U+0000"),
        )
    })
}

/// Cut to the microsecond before anything uses it: bucket, identity and row must not tell different times.
fn time(text: &str) -> Result<Timestamp, Invalid> {
    counterfoil_intent::time(text)
        .ok_or_else(|| Invalid::new(codes::EVENT_TIME_INVALID, "at", counterfoil_intent::A_TIME))
}

/// Kept as it was sent.
fn properties(raw: Option<&RawValue>) -> Result<Option<Box<str>>, Invalid> {
    let Some(raw) = raw else { return Ok(None) };
    let invalid = |message: String| Invalid::new(codes::PROPERTIES_INVALID, "properties", message);
    // Also a lone surrogate, an object nested too deeply, or a member twice.
    let value = counterfoil_intent::json(raw.get())
        .map_err(|error| invalid(format!("the properties cannot be read: {error}")))?;
    let Value::Object(members) = &value else {
        return Err(invalid("the properties are not a JSON object".to_owned()));
    };
    if members.is_empty() {
        return Ok(None);
    }
    if raw.get().contains("u0000") && counterfoil_intent::has_nul(&value) {
        return Err(invalid(
            "the properties contain the character U+0000, which cannot be stored".to_owned(),
        ));
    }
    Ok(Some(raw.get().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-30T12:00:00Z";

    fn read(json: &str) -> Result<Event, Invalid> {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        let reader = Reader {
            limits: Limits::default(),
            actors: &Actors::new(&[7; 32]),
            tenant: TenantId(1),
            now: NOW.parse().unwrap(),
        };
        reader.read(&raw)
    }

    fn code(json: &str) -> &'static str {
        read(json).map_or_else(|invalid| invalid.code, |_| "fine")
    }

    fn with(fields: &str) -> String {
        format!(r#"{{"stream":"web","subject":"/","id":"e1","at":"{NOW}"{fields}}}"#)
    }

    fn at(time: &str) -> String {
        format!(r#"{{"stream":"web","subject":"/","id":"e1","at":"{time}"}}"#)
    }

    /// An event whose id has the time of `NOW`, in milliseconds after it.
    fn dated(shift_ms: i64, at: &str) -> String {
        let ms = NOW.parse::<Timestamp>().unwrap().as_millisecond() + shift_ms;
        let id = uuid::Builder::from_unix_timestamp_millis(ms.unsigned_abs(), &[9; 10]).into_uuid();
        format!(r#"{{"stream":"web","subject":"/","id":"{id}"{at}}}"#)
    }

    #[test]
    fn every_code_is_told_for_its_fault_and_the_first_of_two() {
        let cases = [
            (with(""), "fine"),
            (
                with(&format!(r#","properties":{{"ua":"{}"}}"#, "x".repeat(70_000))),
                codes::EVENT_TOO_LARGE,
            ),
            (with(r#","colour":"red""#), "body_invalid"),
            (format!(r#"["web","/","e1","{NOW}",null,null]"#), "body_invalid"),
            (
                r#"{"stream":"a b","subject":"","id":"","at":""}"#.to_owned(),
                codes::STREAM_INVALID,
            ),
            (
                r#"{"stream":"a","subject":"","id":"","at":""}"#.to_owned(),
                codes::SUBJECT_INVALID,
            ),
            (
                r#"{"stream":"a","subject":"a\u0000","id":"x"}"#.to_owned(),
                codes::SUBJECT_INVALID,
            ),
            (with(r#","actor":"""#), codes::ACTOR_INVALID),
            (
                r#"{"stream":"a","subject":"a","id":"a b"}"#.to_owned(),
                codes::EVENT_ID_INVALID,
            ),
            (
                r#"{"stream":"a","subject":"a","id":"e1"}"#.to_owned(),
                codes::EVENT_TIME_MISSING,
            ),
            (at("yesterday"), codes::EVENT_TIME_INVALID),
            (at("+57000-01-01T00:00:00Z"), codes::EVENT_TIME_INVALID),
            (at("10000-01-01T00:00:00Z"), codes::EVENT_TIME_INVALID),
            (at("9999-01-01T00:00:00Z"), codes::EVENT_AHEAD),
            (at("0001-01-01T00:00:00Z"), codes::EVENT_TOO_OLD),
            (dated(0, ""), "fine"),
            (dated(-86_400_000, &format!(r#","at":"{NOW}""#)), "fine"),
            (
                dated(-86_400_001, &format!(r#","at":"{NOW}""#)),
                codes::EVENT_TIMES_DIFFER,
            ),
            (
                dated(86_400_001, &format!(r#","at":"{NOW}""#)),
                codes::EVENT_TIMES_DIFFER,
            ),
            (with(r#","properties":[]"#), codes::PROPERTIES_INVALID),
            (with(r#","properties":{"a":"\u0000"}"#), codes::PROPERTIES_INVALID),
            (with(r#","properties":{"a":"\ud800"}"#), codes::PROPERTIES_INVALID),
            (with(r#","properties":{"a":1,"a":2}"#), codes::PROPERTIES_INVALID),
            (with(r#","properties":{"a":"\\u0000"}"#), "fine"),
        ];
        for (json, expected) in cases {
            assert_eq!(code(&json), expected, "{json:.200}");
        }
    }

    #[test]
    fn thirty_days_late_and_an_hour_ahead_are_the_most() {
        assert_eq!(code(&at("2026-10-31T12:00:00Z")), "fine");
        assert_eq!(code(&at("2026-10-31T11:59:59.999999Z")), codes::EVENT_TOO_OLD);
        assert_eq!(code(&at("2026-11-30T13:00:00Z")), "fine");
        assert_eq!(code(&at("2026-11-30T13:00:00.000001Z")), codes::EVENT_AHEAD);
    }

    #[test]
    fn time_is_cut_to_the_microsecond_before_anything_uses_it() {
        let (a, b) = (
            read(&at("2026-11-29T23:59:59.9999999Z")).unwrap(),
            read(&at("2026-11-29T23:59:59.999999Z")).unwrap(),
        );
        assert_eq!(a, b);
        assert_eq!(crate::bucket::start(a.at), "2026-11-29T23:45:00Z".parse().unwrap());
    }

    #[test]
    fn the_actor_is_kept_as_a_hash_only() {
        let event = read(&with(r#","actor":"203.0.113.9""#)).unwrap();
        assert!(event.actor.is_some());
        assert!(!format!("{event:?}").contains("203.0.113.9"));
    }

    #[test]
    fn one_id_at_two_times_is_two_events_unless_it_is_a_uuid_v7() {
        let id = |json: &str| read(json).unwrap().id;
        assert_ne!(id(&at("2026-11-29T23:59:59Z")), id(&at("2026-11-30T00:00:00Z")));
        assert_eq!(id(&dated(0, "")), id(&dated(0, r#","at":"2026-11-29T23:00:00Z""#)));
    }
}
