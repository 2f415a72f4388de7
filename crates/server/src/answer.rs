//! Answers of the lanes become bytes.
//!
//! A replay has the body of the first answer, letter by letter; that it is one stands in a header
//! or, in a batch, in the item's `replayed`.

use std::time::Duration;

use bytes::Bytes;
use counterfoil_intent::{Answer, Key, Stub, StubState};
use counterfoil_pg::TenantId;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use jiff::Timestamp;

use crate::codes;
use crate::json::{self, Object};
use crate::param;
use crate::problem::{self, PROBLEM_JSON, Problem, Refused, whole_seconds};

pub(crate) static REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Of a stub, what a caller gets to see.
#[derive(Debug, Clone, Copy)]
struct Shown<'a> {
    key: &'a Key,
    kind: &'a str,
    accepted: bool,
    /// JSON: the result, or the refusal.
    result: &'a str,
    recorded_at: Timestamp,
}

impl<'a> From<&'a Stub> for Shown<'a> {
    fn from(stub: &'a Stub) -> Self {
        Self {
            key: &stub.key,
            kind: &stub.kind,
            accepted: stub.accepted,
            result: &stub.result,
            recorded_at: stub.recorded_at,
        }
    }
}

#[derive(serde::Deserialize)]
struct Refusal<'a> {
    #[serde(borrow)]
    code: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    field: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    message: std::borrow::Cow<'a, str>,
}

impl Shown<'_> {
    fn status(&self, replayed: bool) -> StatusCode {
        match (self.accepted, replayed) {
            (true, false) => StatusCode::CREATED,
            (true, true) => StatusCode::OK,
            (false, _) => StatusCode::CONFLICT,
        }
    }

    /// The members of the document, without the `status` of a problem.
    fn members(&self, out: &mut Object<'_>) {
        if self.accepted {
            out.key(self.key);
            out.text("kind", self.kind);
            out.raw("outcome", "\"accepted\"");
            out.raw("result", self.result);
        } else {
            match serde_json::from_str::<Refusal<'_>>(self.result) {
                Ok(refusal) => problem::members(out, &refusal.code, &refusal.field, &refusal.message),
                Err(_) => problem::members(out, "refused", "", "the intent was refused"),
            }
            out.key(self.key);
            out.text("kind", self.kind);
            out.raw("outcome", "\"refused\"");
        }
        out.time("recorded_at", self.recorded_at);
    }
}

impl Object<'_> {
    fn key(&mut self, key: &Key) {
        match key {
            Key::Uuid(uuid) => self.plain("key", uuid.as_hyphenated()),
            Key::Text(text) => self.text("key", text),
            Key::Internal(_) => self.text("key", &key.to_string()),
        }
    }
}

/// The address of an intent's stub.
pub(crate) fn stub_path(tenant: TenantId, key: &Key) -> String {
    format!("/v1/tenants/{tenant}/stubs/{}", param::encode(&key.to_string()))
}

pub(crate) fn key_reused(field: &str) -> Refused {
    let detail = format!("the key was used with another body; `{field}` differs, and nothing was done");
    Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        codes::KEY_REUSED,
        field.to_owned(),
        detail,
    )
}

/// What an answer without a stub says.
fn problem_of(tenant: TenantId, key: &Key, answer: &Answer) -> Refused {
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    match answer {
        Answer::First(_) | Answer::Replayed(_) => unreachable!("an answer with a stub is rendered from the stub"),
        Answer::Mismatch { field } => key_reused(field),
        Answer::KeyTooOld { retention } => {
            let detail = format!(
                "the UUIDv7 key is older than the {} that stubs are kept: whether it was used can no longer be told",
                in_words(*retention)
            );
            Problem::new(StatusCode::CONFLICT, codes::KEY_TOO_OLD, "key", detail)
        }
        Answer::KeyAhead => Problem::bad_request(
            codes::KEY_AHEAD,
            "key",
            "the UUIDv7 key is more than an hour ahead of the database's clock; set the caller's clock",
        ),
        Answer::TooMany { retry_after } => {
            let detail = "too many intents are waiting; send it again under the same key";
            let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_MANY, "", detail);
            problem.extra.retry_after = Some(*retry_after);
            problem
        }
        Answer::DeadlinePassed => Problem::deadline_passed(),
        Answer::Busy => {
            let detail = "somebody else holds a row of this tenant; nothing was done, send it again under the same key";
            again(Problem::new(unavailable, codes::BUSY, "", detail), 1)
        }
        Answer::Unavailable { reason } => {
            let detail = format!("{reason}; nothing was done, send it again under the same key");
            again(Problem::new(unavailable, codes::UNAVAILABLE, "", detail), 1)
        }
        Answer::ShuttingDown => {
            let detail = "the server is on its way down and did not take the intent; send it again under the same key";
            again(Problem::new(unavailable, codes::SHUTTING_DOWN, "", detail), 2)
        }
        Answer::Failed { id } => {
            let detail =
                "the intent hit a fault of ours; nothing was done, and it can be sent again once that is mended";
            let mut problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, codes::INTERNAL, "", detail);
            problem.extra.id = Some(id.to_string());
            problem
        }
        Answer::Unknown => {
            let detail = "the reply to COMMIT was lost and what came of the intent could not be learnt; \
                          ask for its stub, or send it again under the same key";
            let mut problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, codes::OUTCOME_UNKNOWN, "", detail);
            problem.extra.stub = Some(stub_path(tenant, key));
            problem
        }
    }
}

fn again(mut problem: Refused, seconds: u64) -> Refused {
    problem.extra.retry_after = Some(Duration::from_secs(seconds));
    problem
}

fn in_words(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        _ if seconds >= 86_400 && seconds.is_multiple_of(86_400) => format!("{} days", seconds / 86_400),
        _ => format!("{seconds} seconds"),
    }
}

/// The answer to a request of one intent.
pub(crate) fn single(tenant: TenantId, key: &Key, answer: &Answer) -> Response<Full<Bytes>> {
    match answer {
        Answer::First(stub) => kept(&Shown::from(stub), false),
        Answer::Replayed(stub) => kept(&Shown::from(stub), true),
        answer => problem_of(tenant, key, answer).response(),
    }
}

fn kept(shown: &Shown<'_>, replayed: bool) -> Response<Full<Bytes>> {
    let status = shown.status(replayed);
    let body = json::object(|out| {
        if !shown.accepted {
            out.number("status", status.as_u16());
        }
        shown.members(out);
    });
    let media_type = if shown.accepted {
        "application/json"
    } else {
        PROBLEM_JSON
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    if replayed {
        response
            .headers_mut()
            .insert(REPLAYED.clone(), HeaderValue::from_static("true"));
    }
    response
}

/// One item of a batch: what a request of its own would have got, after `status` and `replayed`.
pub(crate) fn item(out: &mut Vec<u8>, tenant: TenantId, key: &Key, answer: &Answer) {
    match answer {
        Answer::First(stub) => kept_item(out, &Shown::from(stub), false),
        Answer::Replayed(stub) => kept_item(out, &Shown::from(stub), true),
        answer => problem_item(out, &problem_of(tenant, key, answer), Some(key)),
    }
}

fn kept_item(out: &mut Vec<u8>, shown: &Shown<'_>, replayed: bool) {
    let mut object = Object::new(out);
    object.number("status", shown.status(replayed).as_u16());
    object.flag("replayed", replayed);
    shown.members(&mut object);
    object.end();
}

/// An item that left no stub. What would be the header `Retry-After` is a member here.
pub(crate) fn problem_item(out: &mut Vec<u8>, problem: &Problem, key: Option<&Key>) {
    let mut object = Object::new(out);
    object.number("status", problem.status.as_u16());
    object.flag("replayed", false);
    problem.members(&mut object);
    if let Some(wait) = problem.extra.retry_after {
        object.number("retry_after", whole_seconds(wait));
    }
    if let Some(key) = key {
        object.key(key);
    }
    object.end();
}

/// What is known about a key: always 200, since to have no stub is an answer too.
pub(crate) fn stub_state(key: &Key, state: &StubState) -> Vec<u8> {
    json::object(|out| match state {
        StubState::Found(stub) => {
            out.raw("state", "\"found\"");
            found(out, &Shown::from(stub));
        }
        StubState::InFlight => {
            out.raw("state", "\"in_flight\"");
            out.key(key);
            out.text(
                "advice",
                "the intent waits or is being worked on in this server; ask again in a moment",
            );
        }
        StubState::None { as_of } => {
            out.raw("state", "\"none\"");
            out.key(key);
            out.time("as_of", *as_of);
            out.text(
                "advice",
                "nothing was done under this key by that time; send the intent again under the same key",
            );
        }
    })
}

fn found(out: &mut Object<'_>, shown: &Shown<'_>) {
    out.key(shown.key);
    out.text("kind", shown.kind);
    let (outcome, member) = if shown.accepted {
        ("accepted", "result")
    } else {
        ("refused", "refusal")
    };
    out.text("outcome", outcome);
    out.raw(member, shown.result);
    out.time("recorded_at", shown.recorded_at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;
    use uuid::Uuid;

    const TENANT: TenantId = TenantId(7);

    fn shown<'a>(key: &'a Key, accepted: bool, result: &'a str) -> Shown<'a> {
        let recorded_at = "2026-03-01T12:00:00.25Z".parse().unwrap();
        Shown {
            key,
            kind: "ledger.transfer",
            accepted,
            result,
            recorded_at,
        }
    }

    /// Status, headers that matter, body.
    async fn text(response: Response<Full<Bytes>>) -> String {
        let mut out = response.status().as_u16().to_string();
        for name in ["content-type", "idempotency-replayed", "retry-after", "link"] {
            if let Some(value) = response.headers().get(name) {
                out.push_str(&format!("\n{name}: {}", value.to_str().unwrap()));
            }
        }
        let body = response.into_body().collect().await.unwrap().to_bytes();
        format!("{out}\n{}", String::from_utf8(body.to_vec()).unwrap())
    }

    fn answers() -> Vec<Answer> {
        vec![
            Answer::Mismatch {
                field: "amount".to_owned(),
            },
            Answer::KeyTooOld {
                retention: Duration::from_secs(30 * 86_400),
            },
            Answer::KeyAhead,
            Answer::TooMany {
                retry_after: Duration::from_millis(1_200),
            },
            Answer::DeadlinePassed,
            Answer::Busy,
            Answer::Unavailable {
                reason: "the database is read-only",
            },
            Answer::ShuttingDown,
            Answer::Failed { id: Uuid::from_u128(1) },
            Answer::Unknown,
        ]
    }

    #[tokio::test]
    async fn accepted_and_its_replay_have_equal_bodies() {
        let key = Key::parse("01890A5D-AC96-774B-BCCE-B302099A8057").unwrap();
        let stub = shown(&key, true, r#"{"transfer":"t"}"#);
        let (first, replay) = (text(kept(&stub, false)).await, text(kept(&stub, true)).await);
        insta::assert_snapshot!(first, @r#"
201
content-type: application/json
{"key":"01890a5d-ac96-774b-bcce-b302099a8057","kind":"ledger.transfer","outcome":"accepted","result":{"transfer":"t"},"recorded_at":"2026-03-01T12:00:00.250000Z"}
"#);
        insta::assert_snapshot!(replay, @r#"
200
content-type: application/json
idempotency-replayed: true
{"key":"01890a5d-ac96-774b-bcce-b302099a8057","kind":"ledger.transfer","outcome":"accepted","result":{"transfer":"t"},"recorded_at":"2026-03-01T12:00:00.250000Z"}
"#);
        assert_eq!(first.lines().last(), replay.lines().last());
    }

    #[tokio::test]
    async fn refused_and_its_replay_are_both_409_with_equal_bodies() {
        let key = Key::parse("order\"1").unwrap();
        let result = r#"{"code":"floor_crossed","field":"from","message":"the balance would be -1"}"#;
        let stub = shown(&key, false, result);
        let (first, replay) = (text(kept(&stub, false)).await, text(kept(&stub, true)).await);
        insta::assert_snapshot!(first, @r#"
409
content-type: application/problem+json
{"status":409,"type":"/codes#floor_crossed","title":"Floor crossed","code":"floor_crossed","field":"from","detail":"the balance would be -1","key":"order\"1","kind":"ledger.transfer","outcome":"refused","recorded_at":"2026-03-01T12:00:00.250000Z"}
"#);
        insta::assert_snapshot!(replay, @r#"
409
content-type: application/problem+json
idempotency-replayed: true
{"status":409,"type":"/codes#floor_crossed","title":"Floor crossed","code":"floor_crossed","field":"from","detail":"the balance would be -1","key":"order\"1","kind":"ledger.transfer","outcome":"refused","recorded_at":"2026-03-01T12:00:00.250000Z"}
"#);
        assert_eq!(first.lines().last(), replay.lines().last());
    }

    #[tokio::test]
    async fn every_answer_without_a_stub_is_a_problem() {
        let key = Key::parse("a/b").unwrap();
        let mut all = Vec::new();
        for answer in answers() {
            all.push(text(single(TENANT, &key, &answer)).await);
        }
        insta::assert_snapshot!(all.join("\n\n"), @r#"
422
content-type: application/problem+json
{"status":422,"type":"/codes#key_reused","title":"Key reused","code":"key_reused","field":"amount","detail":"the key was used with another body; `amount` differs, and nothing was done"}

409
content-type: application/problem+json
{"status":409,"type":"/codes#key_too_old","title":"Key too old","code":"key_too_old","field":"key","detail":"the UUIDv7 key is older than the 30 days that stubs are kept: whether it was used can no longer be told"}

400
content-type: application/problem+json
{"status":400,"type":"/codes#key_ahead","title":"Key ahead","code":"key_ahead","field":"key","detail":"the UUIDv7 key is more than an hour ahead of the database's clock; set the caller's clock"}

429
content-type: application/problem+json
retry-after: 2
{"status":429,"type":"/codes#too_many","title":"Too many","code":"too_many","detail":"too many intents are waiting; send it again under the same key"}

408
content-type: application/problem+json
{"status":408,"type":"/codes#deadline_passed","title":"Deadline passed","code":"deadline_passed","detail":"the caller's time was over before the intent was started; nothing was done"}

503
content-type: application/problem+json
retry-after: 1
{"status":503,"type":"/codes#busy","title":"Busy","code":"busy","detail":"somebody else holds a row of this tenant; nothing was done, send it again under the same key"}

503
content-type: application/problem+json
retry-after: 1
{"status":503,"type":"/codes#unavailable","title":"Unavailable","code":"unavailable","detail":"the database is read-only; nothing was done, send it again under the same key"}

503
content-type: application/problem+json
retry-after: 2
{"status":503,"type":"/codes#shutting_down","title":"Shutting down","code":"shutting_down","detail":"the server is on its way down and did not take the intent; send it again under the same key"}

500
content-type: application/problem+json
{"status":500,"type":"/codes#internal","title":"Internal","code":"internal","detail":"the intent hit a fault of ours; nothing was done, and it can be sent again once that is mended","id":"00000000-0000-0000-0000-000000000001"}

504
content-type: application/problem+json
link: </v1/tenants/7/stubs/a%2Fb>; rel="status"
{"status":504,"type":"/codes#outcome_unknown","title":"Outcome unknown","code":"outcome_unknown","detail":"the reply to COMMIT was lost and what came of the intent could not be learnt; ask for its stub, or send it again under the same key","stub":"/v1/tenants/7/stubs/a%2Fb"}
"#);
    }

    #[test]
    fn an_item_is_the_single_answer_after_its_status() {
        let key = Key::parse("a/b").unwrap();
        let mut out = Vec::new();
        kept_item(&mut out, &shown(&key, true, "{}"), true);
        out.push(b'\n');
        let refusal = r#"{"code":"account_closed","field":"to","message":"the account is closed"}"#;
        kept_item(&mut out, &shown(&key, false, refusal), false);
        for answer in answers() {
            out.push(b'\n');
            item(&mut out, TENANT, &key, &answer);
        }
        let text = String::from_utf8(out).unwrap();
        for line in text.lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
        insta::assert_snapshot!(text, @r#"
{"status":200,"replayed":true,"key":"a/b","kind":"ledger.transfer","outcome":"accepted","result":{},"recorded_at":"2026-03-01T12:00:00.250000Z"}
{"status":409,"replayed":false,"type":"/codes#account_closed","title":"Account closed","code":"account_closed","field":"to","detail":"the account is closed","key":"a/b","kind":"ledger.transfer","outcome":"refused","recorded_at":"2026-03-01T12:00:00.250000Z"}
{"status":422,"replayed":false,"type":"/codes#key_reused","title":"Key reused","code":"key_reused","field":"amount","detail":"the key was used with another body; `amount` differs, and nothing was done","key":"a/b"}
{"status":409,"replayed":false,"type":"/codes#key_too_old","title":"Key too old","code":"key_too_old","field":"key","detail":"the UUIDv7 key is older than the 30 days that stubs are kept: whether it was used can no longer be told","key":"a/b"}
{"status":400,"replayed":false,"type":"/codes#key_ahead","title":"Key ahead","code":"key_ahead","field":"key","detail":"the UUIDv7 key is more than an hour ahead of the database's clock; set the caller's clock","key":"a/b"}
{"status":429,"replayed":false,"type":"/codes#too_many","title":"Too many","code":"too_many","detail":"too many intents are waiting; send it again under the same key","retry_after":2,"key":"a/b"}
{"status":408,"replayed":false,"type":"/codes#deadline_passed","title":"Deadline passed","code":"deadline_passed","detail":"the caller's time was over before the intent was started; nothing was done","key":"a/b"}
{"status":503,"replayed":false,"type":"/codes#busy","title":"Busy","code":"busy","detail":"somebody else holds a row of this tenant; nothing was done, send it again under the same key","retry_after":1,"key":"a/b"}
{"status":503,"replayed":false,"type":"/codes#unavailable","title":"Unavailable","code":"unavailable","detail":"the database is read-only; nothing was done, send it again under the same key","retry_after":1,"key":"a/b"}
{"status":503,"replayed":false,"type":"/codes#shutting_down","title":"Shutting down","code":"shutting_down","detail":"the server is on its way down and did not take the intent; send it again under the same key","retry_after":2,"key":"a/b"}
{"status":500,"replayed":false,"type":"/codes#internal","title":"Internal","code":"internal","detail":"the intent hit a fault of ours; nothing was done, and it can be sent again once that is mended","id":"00000000-0000-0000-0000-000000000001","key":"a/b"}
{"status":504,"replayed":false,"type":"/codes#outcome_unknown","title":"Outcome unknown","code":"outcome_unknown","detail":"the reply to COMMIT was lost and what came of the intent could not be learnt; ask for its stub, or send it again under the same key","stub":"/v1/tenants/7/stubs/a%2Fb","key":"a/b"}
"#);
    }

    #[test]
    fn a_stub_is_found_in_flight_or_none_as_of_a_time() {
        let key = Key::parse("k").unwrap();
        let all = [
            json::object(|out| found(out, &shown(&key, true, r#"{"hold":"h"}"#))),
            json::object(|out| found(out, &shown(&key, false, r#"{"code":"c","field":"f","message":"m"}"#))),
            stub_state(&key, &StubState::InFlight),
            stub_state(
                &key,
                &StubState::None {
                    as_of: "2026-03-01T12:00:00Z".parse().unwrap(),
                },
            ),
        ];
        let all: Vec<_> = all.into_iter().map(|body| String::from_utf8(body).unwrap()).collect();
        insta::assert_snapshot!(all.join("\n"), @r#"
{"key":"k","kind":"ledger.transfer","outcome":"accepted","result":{"hold":"h"},"recorded_at":"2026-03-01T12:00:00.250000Z"}
{"key":"k","kind":"ledger.transfer","outcome":"refused","refusal":{"code":"c","field":"f","message":"m"},"recorded_at":"2026-03-01T12:00:00.250000Z"}
{"state":"in_flight","key":"k","advice":"the intent waits or is being worked on in this server; ask again in a moment"}
{"state":"none","key":"k","as_of":"2026-03-01T12:00:00.000000Z","advice":"nothing was done under this key by that time; send the intent again under the same key"}
"#);
    }
}
