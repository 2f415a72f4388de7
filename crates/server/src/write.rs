//! Writes: intents go to the lanes, answers come back.

use std::time::Instant;

use bytes::Bytes;
use counterfoil_intent::{Answer, Intent, Invalid};
use counterfoil_pg::TenantId;
use http::request::Parts;
use http::{HeaderValue, Response};
use http_body_util::Full;
use hyper::body::Body;

use crate::answer;
use crate::app::{Answered, App, expects, json};
use crate::body;
use crate::codes;
use crate::engine::Engine;
use crate::head::{self, Format, Head};
use crate::items::{self, Items, Reader, Shape};
use crate::param;
use crate::problem::{Problem, Refused};
use crate::route::{Action, Match};

/// Items read or written before other requests of the same thread get their turn: a request of
/// 2,000 would hold it for some ten milliseconds.
pub(crate) const STRETCH: usize = 100;

impl<E: Engine> App<E> {
    pub(crate) async fn write<B>(&self, found: &Match<'_>, parts: &Parts, body: B, came: Instant) -> Answered
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let head = match self.write_head(found.spec.action, parts, &body, came) {
            Ok(head) => head,
            Err(problem) => {
                body::leave(body, &self.limits, expects(parts));
                return Err(problem);
            }
        };
        let tenant = found.tenant.expect("every route that writes intents is of a tenant");
        let whole = body::read(body, &self.limits, &self.budget, tenant, expects(parts)).await?;
        let reader = Reader {
            kinds: self.engine.kinds(),
            limits: &self.limits,
            tenant,
            key: head.key,
            deadline: head.deadline,
        };
        let text = items::utf8(&whole.bytes)?;
        let Action::Kind { name, merged } = found.spec.action else {
            let items = items::split(text, head.format.unwrap_or(Format::Json), &self.limits)?;
            return match (items.shape, items.values.as_slice()) {
                (Shape::One, [Ok(raw)]) => self.one(tenant, reader.intent(raw)).await,
                _ => Box::pin(self.many(&reader, items)).await,
            };
        };
        match merged {
            None => self.one(tenant, reader.intent_of(name, items::value(text)?)).await,
            Some(field) => {
                let value = param::decode(found.param.unwrap_or_default(), field)?;
                // What there is to say may all be said by the path and the headers.
                let raw = items::value(if text.is_empty() { "{}" } else { text })?;
                let merged = param::merge(raw, field, &value)?;
                self.one(tenant, reader.intent_of(name, &merged)).await
            }
        }
    }

    /// The headers of a write, and whether they fit the route.
    pub(crate) fn write_head<'p, B: Body>(
        &self,
        action: Action,
        parts: &'p Parts,
        body: &B,
        came: Instant,
    ) -> Result<Head<'p>, Refused> {
        let head = Head::read(&parts.headers, came)?;
        let lines_fit = matches!(action, Action::Intents | Action::Events);
        match head.format {
            Some(Format::Lines) if !lines_fit => Err(head::media_type()),
            None if !body.is_end_stream() => Err(head::media_type()),
            _ => Ok(head),
        }
    }

    /// The path that nearly every request takes.
    async fn one(&self, tenant: TenantId, intent: Result<Intent, Invalid>) -> Answered {
        let intent = intent.map_err(Problem::invalid)?;
        let key = intent.key.clone();
        let mut answers = self.engine.submit(vec![intent]).await;
        // Lanes answer everything they are given; not to believe it here would only hide it.
        let answer = answers.pop().unwrap_or(Answer::Unknown);
        Ok(answer::single(tenant, &key, &answer))
    }

    /// An array or lines: each item has its own answer, and the whole is 200.
    async fn many(&self, reader: &Reader<'_>, items: Items<'_>) -> Answered {
        if reader.key.is_some() {
            return Err(Problem::bad_request(
                codes::KEY_FOR_MANY,
                "Idempotency-Key",
                "the header is for a request of one intent; in an array or in lines each has its own `key`",
            ));
        }
        let shape = items.shape;
        let mut places = Vec::with_capacity(items.values.len());
        let mut intents = Vec::with_capacity(items.values.len());
        for (i, value) in items.values.into_iter().enumerate() {
            if i % STRETCH == STRETCH - 1 {
                tokio::task::yield_now().await;
            }
            places.push(match value.and_then(|raw| reader.intent(raw)) {
                Ok(intent) => {
                    let key = intent.key.clone();
                    intents.push(intent);
                    Ok(key)
                }
                Err(invalid) => Err(Problem::invalid(invalid)),
            });
        }
        let answers = if intents.is_empty() {
            Vec::new()
        } else {
            self.engine.submit(intents).await
        };
        let mut answers = answers.into_iter();
        let (open, between, close): (&[u8], &[u8], &[u8]) = match shape {
            Shape::Lines => (b"", b"\n", b"\n"),
            _ => (b"[", b",", b"]"),
        };
        let mut out = Vec::with_capacity(places.len() * 320 + 2);
        out.extend_from_slice(open);
        for (i, place) in places.iter().enumerate() {
            if i > 0 {
                out.extend_from_slice(between);
            }
            if i % STRETCH == STRETCH - 1 {
                tokio::task::yield_now().await;
            }
            match place {
                Ok(key) => {
                    let answer = answers.next().unwrap_or(Answer::Unknown);
                    answer::item(&mut out, reader.tenant, key, &answer);
                }
                Err(problem) => answer::problem_item(&mut out, problem, None),
            }
        }
        if !places.is_empty() || shape == Shape::Array {
            out.extend_from_slice(close);
        }
        Ok(many_response(shape, out))
    }
}

pub(crate) fn many_response(shape: Shape, out: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = json(out);
    if shape == Shape::Lines {
        let value = HeaderValue::from_static("application/x-ndjson");
        response.headers_mut().insert(http::header::CONTENT_TYPE, value);
    }
    response
}
