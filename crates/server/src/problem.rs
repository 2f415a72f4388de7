//! Problem documents (RFC 9457).

use std::borrow::Cow;
use std::time::Duration;

use bytes::Bytes;
use counterfoil_intent::Invalid;
use http::header::{ALLOW, CONTENT_TYPE, LINK, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;

use crate::codes;
use crate::json::{self, Object};

/// Why a request was not done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub status: StatusCode,
    /// Stable; each is explained at `/codes`.
    pub code: Cow<'static, str>,
    /// The path of the field that is wrong, or the name of a header or parameter; empty where
    /// none is.
    pub field: Cow<'static, str>,
    pub detail: Cow<'static, str>,
    pub(crate) extra: Extra,
}

/// What goes with some problems only.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    pub(crate) retry_after: Option<Duration>,
    pub(crate) allow: Option<String>,
    pub(crate) challenge: Option<&'static str>,
    /// Where to ask what came of the intent.
    pub(crate) stub: Option<String>,
    /// What to look for in the log.
    pub(crate) id: Option<String>,
}

/// Boxed: a `Result` that carries it is copied on every request, and nearly none is an error.
pub(crate) type Refused = Box<Problem>;

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        field: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Refused {
        Box::new(Self {
            status,
            code: code.into(),
            field: field.into(),
            detail: detail.into(),
            extra: Extra::default(),
        })
    }

    pub(crate) fn bad_request(
        code: &'static str,
        field: impl Into<Cow<'static, str>>,
        detail: impl Into<Cow<'static, str>>,
    ) -> Refused {
        Self::new(StatusCode::BAD_REQUEST, code, field, detail)
    }

    /// Also for what belongs to another tenant: that it exists is none of the caller's business.
    pub(crate) fn not_found(what: &str) -> Refused {
        Self::new(
            StatusCode::NOT_FOUND,
            codes::NOT_FOUND,
            "",
            format!("there is no such {what}"),
        )
    }

    /// The database could not be asked.
    pub(crate) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Refused {
        let mut problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, codes::UNAVAILABLE, "", detail);
        problem.extra.retry_after = Some(Duration::from_secs(1));
        problem
    }

    /// Before anything was begun.
    pub(crate) fn deadline_passed() -> Refused {
        let detail = "the caller's time was over before the intent was started; nothing was done";
        Self::new(StatusCode::REQUEST_TIMEOUT, codes::DEADLINE_PASSED, "", detail)
    }

    pub(crate) fn invalid(invalid: Invalid) -> Refused {
        Self::new(status_of(invalid.code), invalid.code, invalid.field, invalid.message)
    }

    /// The members of the document, without `status`, which an item of a batch writes first.
    pub(crate) fn members(&self, out: &mut Object<'_>) {
        members(out, &self.code, &self.field, &self.detail);
        if let Some(stub) = &self.extra.stub {
            out.text("stub", stub);
        }
        if let Some(id) = &self.extra.id {
            out.text("id", id);
        }
    }

    pub(crate) fn response(&self) -> Response<Full<Bytes>> {
        let body = json::object(|out| {
            out.number("status", self.status.as_u16());
            self.members(out);
        });
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if let Some(wait) = self.extra.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(wait)));
        }
        let optional = [
            (ALLOW, self.extra.allow.clone()),
            (WWW_AUTHENTICATE, self.extra.challenge.map(str::to_owned)),
            // The relation of RFC 8631: a resource that tells the status of this one.
            (
                LINK,
                self.extra.stub.as_ref().map(|stub| format!("<{stub}>; rel=\"status\"")),
            ),
        ];
        for (name, value) in optional {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        response
    }
}

pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// What is wrong with an intent on its face is 400, but what is too large says so.
fn status_of(code: &str) -> StatusCode {
    match code {
        "body_too_large" | "all_too_long" | "event_too_large" => StatusCode::PAYLOAD_TOO_LARGE,
        _ => StatusCode::BAD_REQUEST,
    }
}

/// `type` is where the code is explained, `title` the code in words: there is one of each per code,
/// as the RFC wants it, and no table to forget a code in.
pub(crate) fn members(out: &mut Object<'_>, code: &str, field: &str, detail: &str) {
    out.text("type", &format!("/codes#{code}"));
    out.text("title", &title(code));
    out.text("code", code);
    if !field.is_empty() {
        out.text("field", field);
    }
    out.text("detail", detail);
}

fn title(code: &str) -> String {
    let mut title = code.replace(['_', '.'], " ");
    if let Some(first) = title.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    title
}

/// `Retry-After` counts whole seconds: rounded up, and never "now".
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt as _;

    async fn text(response: Response<Full<Bytes>>) -> String {
        String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_problem_has_its_type_title_status_code_field_and_detail() {
        let response = Problem::invalid(Invalid::new("amount_zero", "body.amount", "zero moves nothing")).response();
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        insta::assert_snapshot!(
            text(response).await,
            @r#"{"status":400,"type":"/codes#amount_zero","title":"Amount zero","code":"amount_zero","field":"body.amount","detail":"zero moves nothing"}"#
        );
    }

    #[test]
    fn too_large_a_body_is_413_and_not_400() {
        assert_eq!(Problem::invalid(Invalid::new("body_too_large", "body", "")).status, 413);
    }

    #[test]
    fn retry_after_is_rounded_up() {
        assert_eq!(whole_seconds(Duration::ZERO), 1);
        assert_eq!(whole_seconds(Duration::from_millis(20)), 1);
        assert_eq!(whole_seconds(Duration::from_secs(2)), 2);
        assert_eq!(whole_seconds(Duration::from_millis(2_001)), 3);
    }
}
