//! One request, from its head to its answer.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use bytes::Bytes;
use counterfoil_pg::TenantId;
use counterfoil_tenant::Caller;
use futures_util::FutureExt as _;
use http::header::{CONTENT_TYPE, EXPECT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Body;
use uuid::Uuid;

use crate::body;
use crate::codes;
use crate::engine::Engine;
use crate::head;
use crate::limits::Limits;
use crate::metrics::HttpMetrics;
use crate::param::Query;
use crate::problem::{Problem, Refused};
use crate::quiet::Quiet;
use crate::ready::Cached;
use crate::route::{self, Action, Door, Match, Miss};
use crate::shares::Shares;

/// How long it may take to find out whose key it is.
const ADMISSION: Duration = Duration::from_secs(10);

pub(crate) type Answered = Result<Response<Full<Bytes>>, Refused>;

/// The server without its sockets.
pub struct App<E> {
    pub(crate) engine: E,
    pub(crate) limits: Limits,
    /// Bytes of large bodies.
    pub(crate) budget: Shares,
    /// Reads that take long.
    pub(crate) slow_reads: Shares,
    pub(crate) metrics: HttpMetrics,
    pub(crate) ready: Cached,
    pub(crate) started: Instant,
}

impl<E: Engine> App<E> {
    #[must_use]
    pub fn new(engine: E, limits: Limits) -> Self {
        Self {
            budget: body::budget(&limits),
            slow_reads: Shares::new(usize::MAX, limits.slow_reads),
            metrics: HttpMetrics::new(),
            ready: Cached::default(),
            started: Instant::now(),
            engine,
            limits,
        }
    }

    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Answers one request. Never fails: what goes wrong is an answer too.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Full<Bytes>>
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let came = Instant::now();
        let (parts, body) = request.into_parts();
        let found = route::find(&parts.method, parts.uri.path());
        let route = found.as_ref().ok().map(|found| found.index);
        // Of a kind that panics while it reads a body, the caller still gets an answer.
        let answered = AssertUnwindSafe(async {
            match &found {
                Ok(found) => self.act(found, &parts, body, came).await,
                Err(miss) => {
                    body::leave(body, &self.limits, expects(&parts));
                    Err(missed(miss))
                }
            }
        });
        let answered = answered.catch_unwind().await.unwrap_or_else(|_| Err(panicked(&parts)));
        let response = answered.unwrap_or_else(|problem| problem.response());
        self.metrics.count(route, response.status(), came.elapsed());
        response
    }

    async fn act<B>(&self, found: &Match<'_>, parts: &Parts, body: B, came: Instant) -> Answered
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        if let Err(problem) = head::host(parts) {
            body::leave(body, &self.limits, expects(parts));
            return Err(problem);
        }
        // Whoever may not pass learns nothing else, and nothing of their body is read.
        let query = match self.admit_in_time(found, &parts.headers, came).await {
            Ok(()) => Query::read(parts.uri.query(), found.spec.query),
            Err(problem) => Err(problem),
        };
        let query = match query {
            Ok(query) => query,
            Err(problem) => {
                body::leave(body, &self.limits, expects(parts));
                return Err(problem);
            }
        };
        match found.spec.action {
            Action::Intents | Action::Kind { .. } => self.write(found, parts, body, came).await,
            Action::Events => self.events(found, parts, body, came).await,
            Action::TenantCreate => Box::pin(self.tenant_create(parts, body)).await,
            // Boxed, so that the frequent requests do not carry the room that these need.
            _ => {
                body::leave(body, &self.limits, expects(parts));
                Box::pin(self.look(found, &query)).await
            }
        }
    }

    /// [`Self::admit`], for as long as the caller waits: a database that does not answer must not keep
    /// them longer than it does later, in the lane.
    async fn admit_in_time(&self, found: &Match<'_>, headers: &HeaderMap, came: Instant) -> Result<(), Refused> {
        let writes = found.spec.method == Method::POST;
        let deadline = head::deadline(headers, came).filter(|_| writes);
        let by = deadline.map_or(came + ADMISSION, |deadline| deadline.min(came + ADMISSION));
        match tokio::time::timeout_at(by.into(), self.admit(found, headers)).await {
            Ok(admitted) => admitted,
            Err(_) if deadline == Some(by) => Err(Problem::deadline_passed()),
            Err(_) => Err(Problem::unavailable(
                "the database did not answer in time whose key this is",
            )),
        }
    }

    /// Checks the caller's key against the route's door.
    async fn admit(&self, found: &Match<'_>, headers: &HeaderMap) -> Result<(), Refused> {
        let door = found.spec.action.door();
        if door == Door::Public {
            return Ok(());
        }
        // A browser can open the pages for people.
        let page = found.spec.action.is_page();
        let secret = head::secret(headers, page)?;
        let caller = match &secret {
            None => None,
            Some(secret) => self
                .engine
                .check(secret)
                .await
                .map_err(|error| fault("check a key", &error.0))?,
        };
        let Some(caller) = caller else {
            return Err(unauthorized(secret.is_some(), page));
        };
        self.pass(door, found.tenant, caller).await
    }

    async fn pass(&self, door: Door, tenant: Option<TenantId>, caller: Caller) -> Result<(), Refused> {
        match (door, caller, tenant) {
            (Door::Public | Door::AnyKey, ..) => Ok(()),
            (Door::Operator, Caller::Operator, _) => Ok(()),
            (Door::Operator, Caller::Tenant(_), _) => {
                let detail = "this takes the key of an operator, and this one is a tenant's";
                Err(Problem::new(StatusCode::FORBIDDEN, codes::OPERATORS_ONLY, "", detail))
            }
            (Door::Tenant, Caller::Tenant(own), Some(tenant)) if own == tenant => Ok(()),
            (Door::Tenant, Caller::Operator, Some(tenant)) => {
                let known = self.engine.tenant_exists(tenant).await;
                if known.map_err(|error| fault("look for a tenant", &error.0))? {
                    Ok(())
                } else {
                    Err(Problem::not_found("tenant"))
                }
            }
            (Door::Tenant, ..) => Err(Problem::not_found("tenant")),
        }
    }

    async fn look(&self, found: &Match<'_>, query: &Query<'_>) -> Answered {
        match found.spec.action {
            Action::Health => Ok(text("text/plain; charset=utf-8", Bytes::from_static(b"ok\n"))),
            Action::Ready => Ok(self.readiness().await),
            Action::Metrics => Ok(self.metrics_page()),
            Action::OpenApi => Ok(json(crate::pages::OPENAPI.as_bytes())),
            Action::Codes => Ok(text("text/html; charset=utf-8", crate::codes_page::codes_page())),
            Action::Status => Ok(self.status_page().await),
            Action::Tenants => self.tenants(query).await,
            _ => self.read(found, query).await,
        }
    }
}

pub(crate) fn expects(parts: &Parts) -> bool {
    parts.headers.contains_key(EXPECT)
}

pub(crate) fn text(media_type: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

pub(crate) fn json(body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    text("application/json", body.into())
}

fn missed(miss: &Miss) -> Refused {
    match miss {
        Miss::NotFound => Problem::new(
            StatusCode::NOT_FOUND,
            codes::ROUTE_UNKNOWN,
            "",
            "there is no such route; /openapi.json lists them",
        ),
        Miss::Method { allow } => {
            let detail = format!("the methods of this route are {allow}");
            let mut problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, codes::METHOD_NOT_ALLOWED, "", detail);
            problem.extra.allow = Some(allow.clone());
            problem
        }
    }
}

fn panicked(parts: &Parts) -> Refused {
    let id = new_id();
    tracing::error!(%id, method = %parts.method, path = parts.uri.path(), "a request panicked before it was handed over");
    internal(id, "the request hit a fault of ours; the log has it under the id")
}

fn internal(id: Uuid, detail: &'static str) -> Refused {
    let mut problem = Problem::new(StatusCode::INTERNAL_SERVER_ERROR, codes::INTERNAL, "", detail);
    problem.extra.id = Some(id.to_string());
    problem
}

fn new_id() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

fn unauthorized(presented: bool, page: bool) -> Refused {
    let (detail, challenge) = match (presented, page) {
        (false, false) => (
            "send Authorization: Bearer with a key of yours",
            "Bearer realm=\"counterfoil\"",
        ),
        (true, false) => (
            "the key is not known, or was revoked",
            "Bearer realm=\"counterfoil\", error=\"invalid_token\"",
        ),
        (false, true) => (
            "give a key of yours: in a browser as the password, else with Authorization: Bearer",
            "Basic realm=\"counterfoil: any name, a key as the password\", Bearer realm=\"counterfoil\"",
        ),
        (true, true) => (
            "the key is not known, or was revoked",
            "Basic realm=\"counterfoil: any name, a key as the password\", Bearer realm=\"counterfoil\", error=\"invalid_token\"",
        ),
    };
    let mut problem = Problem::new(StatusCode::UNAUTHORIZED, codes::UNAUTHORIZED, "Authorization", detail);
    problem.extra.challenge = Some(challenge);
    problem
}

static AWAY: Quiet = Quiet::new();

/// The database did not answer a question. Whether it is away or we asked wrongly, the caller learns
/// no more than that; the log has the rest under the id.
pub(crate) fn fault(doing: &'static str, error: &counterfoil_pg::Error) -> Refused {
    use counterfoil_pg::{Class, Error};
    let id = new_id();
    let chain = chain(error);
    let timed_out = error.sqlstate() == Some("57014");
    let away = matches!(error.class(), Class::Reconnect | Class::Retry)
        || matches!(
            error,
            Error::Connect(_) | Error::PoolExhausted { .. } | Error::PoolClosed { .. }
        );
    if away || timed_out {
        // Every request meets it, and a log that is full of it hides the rest.
        if let Some(unsaid) = AWAY.speak(Instant::now()) {
            tracing::warn!(%id, error = %chain, unsaid, "could not {doing}");
        }
        let detail = if timed_out {
            "the database took too long"
        } else {
            "the database could not be reached"
        };
        let mut problem = Problem::unavailable(detail);
        problem.extra.id = Some(id.to_string());
        return problem;
    }
    tracing::error!(%id, error = %chain, "could not {doing}");
    if matches!(error, Error::Unknown { .. }) {
        let detail = "the reply to COMMIT was lost and could not be learnt; send it again under the same key";
        let mut problem = Problem::new(StatusCode::GATEWAY_TIMEOUT, codes::OUTCOME_UNKNOWN, "", detail);
        problem.extra.id = Some(id.to_string());
        return problem;
    }
    internal(id, "the question hit a fault of ours; the log has it under the id")
}

/// An error with its sources: none repeats another.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}
