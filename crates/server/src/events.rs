//! Events: they are handed to their lane, and what was counted of them is asked for.

use std::time::Instant;

use bytes::Bytes;
use counterfoil_events::report::{Ask, Counts, Grain, Interval, Subject, weekday};
use counterfoil_events::{Answer, Limits, Reader};
use counterfoil_intent::Invalid;
use counterfoil_pg::TenantId;
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::answer::problem_item;
use crate::app::{Answered, App, expects, fault, json, text};
use crate::body;
use crate::codes;
use crate::engine::Engine;
use crate::head::Format;
use crate::items::{self, Shape};
use crate::json::{self, Object};
use crate::param::Query;
use crate::problem::{Problem, Refused};
use crate::route::Match;
use crate::write::{STRETCH, many_response};

/// Subjects of one list: 1,000, and 10 where the caller does not say.
const MOST_SUBJECTS: i64 = 1_000;

impl<E: Engine> App<E> {
    /// One event, an array, or one a line.
    pub(crate) async fn events<B>(&self, found: &Match<'_>, parts: &Parts, body: B, came: Instant) -> Answered
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let head = match self.write_head(found.spec.action, parts, &body, came) {
            Ok(head) if head.key.is_some() => Err(Problem::bad_request(
                codes::KEY_FOR_EVENTS,
                "Idempotency-Key",
                "the key of an event is its id",
            )),
            head => head,
        };
        let head = match head {
            Ok(head) => head,
            Err(problem) => {
                body::leave(body, &self.limits, expects(parts));
                return Err(problem);
            }
        };
        let tenant = found.tenant.expect("every route that writes events is of a tenant");
        let whole = body::read(body, &self.limits, &self.budget, tenant, expects(parts)).await?;
        let format = head.format.unwrap_or(Format::Json);
        let text = match format {
            Format::Json => std::borrow::Cow::Borrowed(items::utf8(&whole.bytes)?),
            // A line that is not UTF-8 spoils nothing but itself: it is no JSON either.
            Format::Lines => String::from_utf8_lossy(&whole.bytes),
        };
        let items = items::split(&text, format, &self.limits)?;
        let reader = Reader {
            limits: Limits::default(),
            actors: self.engine.actors(),
            tenant,
            now: counterfoil_events::now(),
        };
        if let (Shape::One, [Ok(raw)]) = (items.shape, items.values.as_slice()) {
            let event = reader.read(raw).map_err(Problem::invalid)?;
            let id = event.id();
            let answers = self.engine.store_events(tenant, vec![event], head.deadline).await;
            // The lane answers everything it is given; not to believe it here would only hide it.
            return Ok(single(id, answers.first().unwrap_or(&Answer::Unknown)));
        }
        let mut places = Vec::with_capacity(items.values.len());
        let mut events = Vec::with_capacity(items.values.len());
        let shape = items.shape;
        for (i, value) in items.values.into_iter().enumerate() {
            if i % STRETCH == STRETCH - 1 {
                tokio::task::yield_now().await;
            }
            let event = value.and_then(|raw| reader.read(raw));
            places.push(event.map(|event| {
                let id = event.id();
                events.push(event);
                id
            }));
        }
        let answers = self.engine.store_events(tenant, events, head.deadline).await;
        Ok(many_response(shape, many(shape, places, answers).await))
    }

    /// How many, per interval or per subject.
    pub(crate) async fn report(&self, tenant: TenantId, query: &Query<'_>) -> Answered {
        let Some(stream) = query.get("stream") else {
            let detail = "say which stream: ?stream=web";
            return Err(Problem::bad_request(codes::QUERY_MISSING, "stream", detail));
        };
        let format = Shown::read(query)?;
        let (from, to) = (query.time("from")?, query.time("to")?);
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            let detail = "the end is not behind the beginning";
            return Err(Problem::bad_request(codes::QUERY_SPAN, "to", detail));
        }
        if let Some(top) = query.get("top") {
            if let Some(other) = ["subject", "grain", "week_start", "zone"]
                .into_iter()
                .find(|name| query.get(name).is_some())
            {
                let detail = "a list of subjects is of one span: it has no intervals and no subject of its own";
                return Err(Problem::bad_request(codes::QUERY_CONFLICT, other, detail));
            }
            let most = most(top)?;
            let counts = self.engine.top(tenant, stream, (from, to), most).await;
            let counts = counts.map_err(|error| fault("count events", &error))?;
            return Ok(format.subjects(stream, &counts));
        }
        let grain = match query.get("grain") {
            None => Grain::Day,
            Some(name) => Grain::named(name).ok_or_else(|| {
                let names: Vec<_> = Grain::ALL.iter().map(|(_, name)| *name).collect();
                let detail = format!("a grain is one of {}", names.join(", "));
                Problem::bad_request(codes::QUERY_GRAIN, "grain", detail)
            })?,
        };
        let zone = query.get("zone").map(zone).transpose()?;
        let week_start = query.get("week_start").unwrap_or("monday");
        let week_start = weekday(week_start).ok_or_else(|| {
            let detail = "a week begins on a day by its English name, such as sunday";
            Problem::bad_request(codes::QUERY_WEEK_START, "week_start", detail)
        })?;
        let ask = |zone| Ask {
            stream: stream.to_owned(),
            subject: query.get("subject").map(str::to_owned),
            grain,
            week_start,
            zone,
            from,
            to,
        };
        let counts = self.engine.series(tenant, zone, ask).await;
        match counts.map_err(|error| fault("count events", &error))? {
            Ok(counts) => Ok(format.intervals(stream, &counts)),
            Err(error) => Err(Problem::bad_request(codes::QUERY_SPAN, "grain", error.to_string())),
        }
    }
}

fn most(text: &str) -> Result<i64, Refused> {
    let digits = !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(most) if digits && (1..=MOST_SUBJECTS).contains(&most) => Ok(most),
        _ => Err(Problem::bad_request(
            codes::QUERY_LIMIT,
            "top",
            format!("top is a whole number from 1 to {MOST_SUBJECTS}"),
        )),
    }
}

fn zone(name: &str) -> Result<TimeZone, Refused> {
    TimeZone::get(name).map_err(|_| {
        let detail = "a zone has an IANA name, such as Asia/Taipei";
        Problem::bad_request(codes::QUERY_ZONE, "zone", detail)
    })
}

fn problem_of(answer: &Answer) -> Option<Refused> {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    let mut problem = match answer {
        Answer::Stored | Answer::Known => return None,
        Answer::TooMany { .. } => {
            let detail = "too many events are waiting; send it again";
            Problem::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_MANY, "", detail)
        }
        Answer::DeadlinePassed => {
            let detail = "the caller's time was over before the event was begun; nothing was stored";
            Problem::new(StatusCode::REQUEST_TIMEOUT, codes::DEADLINE_PASSED, "", detail)
        }
        Answer::Unavailable { reason } => {
            let detail = format!("{reason}; nothing was stored, send it again");
            Problem::new(unavailable, codes::UNAVAILABLE, "", detail)
        }
        Answer::ShuttingDown => {
            let detail = "the server is on its way down and did not take the event; send it again";
            Problem::new(unavailable, codes::SHUTTING_DOWN, "", detail)
        }
        Answer::Failed { .. } => {
            let detail = "the event hit a fault of ours; it was not stored, and can be sent again once that is mended";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, codes::INTERNAL, "", detail)
        }
        Answer::Unknown => {
            let detail = "the reply to COMMIT was lost; send it again: what was stored is known";
            Problem::new(StatusCode::GATEWAY_TIMEOUT, codes::OUTCOME_UNKNOWN, "", detail)
        }
    };
    problem.extra.retry_after = match answer {
        Answer::TooMany { retry_after } => Some(*retry_after),
        Answer::Unavailable { .. } => Some(std::time::Duration::from_secs(1)),
        Answer::ShuttingDown => Some(std::time::Duration::from_secs(2)),
        _ => None,
    };
    if let Answer::Failed { id } = answer {
        problem.extra.id = Some(id.to_string());
    }
    Some(problem)
}

fn members(out: &mut Object<'_>, id: Uuid, known: bool) {
    out.plain("event", id.as_hyphenated());
    out.raw("outcome", if known { "\"known\"" } else { "\"stored\"" });
}

/// The answer to a request of one event.
fn single(id: Uuid, answer: &Answer) -> Response<Full<Bytes>> {
    if let Some(problem) = problem_of(answer) {
        return problem.response();
    }
    let known = *answer == Answer::Known;
    let mut response = json(json::object(|out| members(out, id, known)));
    if !known {
        *response.status_mut() = StatusCode::CREATED;
    }
    response
}

/// The items of an array or of lines: what a request of its own would have got, after `status`.
async fn many(shape: Shape, places: Vec<Result<Uuid, Invalid>>, answers: Vec<Answer>) -> Vec<u8> {
    let (open, between, close): (&[u8], &[u8], &[u8]) = match shape {
        Shape::Lines => (b"", b"\n", b"\n"),
        _ => (b"[", b",", b"]"),
    };
    let mut answers = answers.into_iter();
    let mut out = Vec::with_capacity(places.len() * 90 + 2);
    let empty = places.is_empty();
    out.extend_from_slice(open);
    for (i, place) in places.into_iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(between);
        }
        if i % STRETCH == STRETCH - 1 {
            tokio::task::yield_now().await;
        }
        match place {
            Ok(id) => item(&mut out, id, &answers.next().unwrap_or(Answer::Unknown)),
            Err(invalid) => problem_item(&mut out, &Problem::invalid(invalid), None),
        }
    }
    if !empty || shape == Shape::Array {
        out.extend_from_slice(close);
    }
    out
}

fn item(out: &mut Vec<u8>, id: Uuid, answer: &Answer) {
    if let Some(problem) = problem_of(answer) {
        return problem_item(out, &problem, None);
    }
    let known = *answer == Answer::Known;
    let mut object = Object::new(out);
    object.number("status", if known { 200 } else { 201 });
    members(&mut object, id, known);
    object.end();
}

/// How a report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Json,
    Csv,
}

impl Shown {
    fn read(query: &Query<'_>) -> Result<Self, Refused> {
        match query.get("format") {
            None | Some("json") => Ok(Self::Json),
            Some("csv") => Ok(Self::Csv),
            Some(_) => Err(Problem::bad_request(
                codes::QUERY_FORMAT,
                "format",
                "the format is json or csv",
            )),
        }
    }

    fn intervals(self, stream: &str, counts: &Counts<Interval>) -> Response<Full<Bytes>> {
        if self == Self::Csv {
            return csv(counterfoil_events::report::intervals_csv(&counts.rows));
        }
        json(json::object(|out| {
            head(out, stream, counts);
            out.list("intervals", &counts.rows, |out, row| {
                out.plain("start", row.start_text());
                out.number("count", row.n);
            });
        }))
    }

    fn subjects(self, stream: &str, counts: &Counts<Subject>) -> Response<Full<Bytes>> {
        if self == Self::Csv {
            return csv(counterfoil_events::report::subjects_csv(&counts.rows));
        }
        json(json::object(|out| {
            head(out, stream, counts);
            out.list("subjects", &counts.rows, |out, row| {
                out.text("subject", &row.subject);
                out.number("count", row.n);
            });
        }))
    }
}

fn head<T>(out: &mut Object<'_>, stream: &str, counts: &Counts<T>) {
    out.text("stream", stream);
    let ends = counts.span.map(|span| (span.from, span.to));
    for (name, end) in [("from", ends.map(|ends| ends.0)), ("to", ends.map(|ends| ends.1))] {
        match end {
            Some(end) => out.time(name, end),
            None => out.raw(name, "null"),
        }
    }
}

fn csv(table: String) -> Response<Full<Bytes>> {
    text("text/csv; charset=utf-8", Bytes::from(table))
}
