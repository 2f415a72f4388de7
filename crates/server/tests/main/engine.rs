//! The engine of these tests, and a client that hands it requests.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use counterfoil_events::report::{self, Counts, Grain, Interval, Span, Subject, TooLong};
use counterfoil_events::{Actors, Event};
use counterfoil_intent::{
    Answer, Books, Context, Fields, Intent, Invalid, Key, Kind, Kinds, Needs, Outcome, Refs, Reply, StubState,
};
use counterfoil_ledger::read::{AccountView, BalanceAt, EntryView, HoldView, Order, TransferView};
use counterfoil_pg::{Durability, Error, TenantId};
use counterfoil_server::{App, AsOf, Engine, Limits, Readiness};
use counterfoil_tenant::{Caller, Created, NewTenant, Tenant, Unavailable};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use serde_json::Value;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::ledger;

pub const TENANT: TenantId = TenantId(7);
pub const OTHER: TenantId = TenantId(8);
pub const TENANT_KEY: &str = "of-seven";
pub const OPERATOR_KEY: &str = "of-the-operator";

/// Any object is its body, and its normal form is the text it was sent as.
macro_rules! kinds {
    ($($kind:ident = $name:literal;)+) => {
        $(
            struct $kind;
            impl Kind for $kind {
                const NAME: &'static str = $name;
                type Body = String;
                fn parse(raw: &RawValue) -> Result<String, Invalid> {
                    let body: Value = Kinds::read(raw)?;
                    assert_ne!(body["x"], "panic", "as asked");
                    if !body.is_object() {
                        return Err(Invalid::new("body_invalid", "", "not an object"));
                    }
                    Ok(raw.get().to_owned())
                }
                fn fields(body: &String, fields: &mut Fields) {
                    fields.field("body", body.as_bytes());
                }
                fn needs(_: &String, _: &Refs, _: &mut Needs<'_>) {}
                fn apply(_: &mut Books, _: &String, _: &Refs, _: &mut Context) -> Outcome {
                    Outcome::Accepted(Reply::new())
                }
            }
        )+
        fn kinds() -> Kinds {
            let mut kinds = Kinds::new();
            $(kinds.kind::<$kind>();)+
            kinds
        }
    };
}

kinds! {
    Transfer = "ledger.transfer";
    Hold = "ledger.hold";
    Capture = "ledger.capture";
    Release = "ledger.release";
    Reverse = "ledger.reverse";
    Open = "ledger.open";
    Limit = "ledger.limit";
    Close = "ledger.close";
    Asset = "ledger.asset";
}

pub struct Fake {
    kinds: Kinds,
    actors: Actors,
    /// What becomes of events, in turn; then all are stored.
    pub came: Mutex<Vec<counterfoil_events::Answer>>,
    /// The identities of the events that were handed over.
    pub events: Mutex<Vec<Uuid>>,
    /// The keys of the intents that were handed over.
    pub taken: Mutex<Vec<String>>,
    pub answer: Mutex<Answer>,
    pub asked_ready: Mutex<u32>,
    /// Whether any time was left when it was told to land what it has taken.
    pub time_to_land: Mutex<Option<bool>>,
}

impl Fake {
    fn new() -> Self {
        Self {
            kinds: kinds(),
            actors: Actors::new(&[7; 32]),
            came: Mutex::default(),
            events: Mutex::default(),
            taken: Mutex::default(),
            answer: Mutex::new(Answer::Busy),
            asked_ready: Mutex::default(),
            time_to_land: Mutex::default(),
        }
    }
}

impl Engine for Fake {
    fn kinds(&self) -> &Kinds {
        &self.kinds
    }

    async fn check(&self, secret: &str) -> Result<Option<Caller>, Unavailable> {
        match secret {
            TENANT_KEY => Ok(Some(Caller::Tenant(TENANT))),
            OPERATOR_KEY => Ok(Some(Caller::Operator)),
            "database-away" => Err(Unavailable(Arc::new(Error::Lost))),
            "database-silent" => std::future::pending().await,
            _ => Ok(None),
        }
    }

    async fn tenant_exists(&self, tenant: TenantId) -> Result<bool, Unavailable> {
        Ok(tenant == TENANT || tenant == OTHER)
    }

    async fn submit(&self, intents: Vec<Intent>) -> Vec<Answer> {
        let answer = self.answer.lock().clone();
        self.taken
            .lock()
            .extend(intents.iter().map(|intent| intent.key.to_string()));
        intents.iter().map(|_| answer.clone()).collect()
    }

    fn actors(&self) -> &Actors {
        &self.actors
    }

    async fn store_events(
        &self,
        _: TenantId,
        events: Vec<Event>,
        _: Option<Instant>,
    ) -> Vec<counterfoil_events::Answer> {
        let mut came = std::mem::take(&mut *self.came.lock());
        self.events.lock().extend(events.iter().map(Event::id));
        came.resize(events.len(), counterfoil_events::Answer::Stored);
        came
    }

    async fn series(
        &self,
        _: TenantId,
        zone: Option<TimeZone>,
        ask: impl FnOnce(TimeZone) -> report::Ask + Send,
    ) -> Result<Result<Counts<Interval>, TooLong>, Error> {
        let ask = ask(zone.unwrap_or(TimeZone::UTC));
        if ask.grain == Grain::Bucket {
            return Ok(Err(TooLong));
        }
        let span = Span {
            from: "2026-11-29T16:00:00Z".parse().unwrap(),
            to: "2026-12-01T16:00:00Z".parse().unwrap(),
        };
        let rows = [(span.from, 7), ("2026-11-30T16:00:00Z".parse().unwrap(), 0)];
        let rows = rows.map(|(start, n)| Interval {
            start: start.to_zoned(ask.zone.clone()),
            n,
        });
        Ok(Ok(Counts {
            span: Some(span),
            rows: rows.to_vec(),
        }))
    }

    async fn top(
        &self,
        _: TenantId,
        _: &str,
        _: (Option<Timestamp>, Option<Timestamp>),
        most: i64,
    ) -> Result<Counts<Subject>, Error> {
        let rows = [("/a,b", 7), ("/", 3)].map(|(subject, n)| Subject {
            subject: subject.to_owned(),
            n,
        });
        Ok(Counts {
            span: None,
            rows: rows.into_iter().take(usize::try_from(most).unwrap()).collect(),
        })
    }

    async fn stub(&self, _: TenantId, key: &Key) -> Result<StubState, Error> {
        match key.to_string().as_str() {
            "lost" => Err(Error::Lost),
            "broken" => Err(Error::Abandoned { statement: "stub_get" }),
            "waiting" => Ok(StubState::InFlight),
            _ => Ok(StubState::None {
                as_of: "2026-03-01T12:00:00Z".parse().unwrap(),
            }),
        }
    }

    async fn account(&self, _: TenantId, code: &str) -> Result<Option<AccountView>, Error> {
        Ok(exists(code).then(|| ledger::account(code)))
    }

    async fn accounts(
        &self,
        _: TenantId,
        prefix: &str,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<AccountView>, Error> {
        let codes = ["cash/1", "cash/2", "cash/3", "shop"].into_iter();
        let codes = codes.filter(|code| code.starts_with(prefix) && after.is_none_or(|after| *code > after));
        Ok(codes
            .take(usize::try_from(limit).unwrap())
            .map(ledger::account)
            .collect())
    }

    async fn balance(&self, _: TenantId, code: &str, _: AsOf) -> Result<Option<BalanceAt>, Error> {
        Ok(exists(code).then(ledger::balance))
    }

    async fn entries(
        &self,
        _: TenantId,
        code: &str,
        order: Order,
        after: Option<i64>,
        limit: i64,
    ) -> Result<Option<Vec<EntryView>>, Error> {
        let versions: Vec<i64> = match order {
            Order::OldestFirst => (2..=4)
                .filter(|version| after.is_none_or(|after| *version > after))
                .collect(),
            Order::NewestFirst => (2..=4)
                .rev()
                .filter(|version| after.is_none_or(|after| *version < after))
                .collect(),
        };
        let rows = versions
            .into_iter()
            .take(usize::try_from(limit).unwrap())
            .map(ledger::entry);
        Ok(exists(code).then(|| rows.collect()))
    }

    async fn holds(
        &self,
        _: TenantId,
        code: &str,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Option<Vec<HoldView>>, Error> {
        let first = after.map_or(1, |id| id.as_u128() + 1);
        let rows = (first..=3)
            .take(usize::try_from(limit).unwrap())
            .map(|id| ledger::hold(Uuid::from_u128(id)));
        Ok(exists(code).then(|| rows.collect()))
    }

    async fn transfer(&self, _: TenantId, id: Uuid) -> Result<Option<TransferView>, Error> {
        Ok((!id.is_nil()).then(|| ledger::transfer(id)))
    }

    async fn hold(&self, _: TenantId, id: Uuid) -> Result<Option<HoldView>, Error> {
        Ok((!id.is_nil()).then(|| ledger::hold(id)))
    }

    async fn tenants(&self, after: Option<TenantId>, limit: u16) -> Result<Vec<Tenant>, Error> {
        let first = after.map_or(1, |id| id.0 + 1);
        Ok((first..=3).take(limit.into()).map(tenant).collect())
    }

    async fn tenant_create(
        &self,
        key: &str,
        _: NewTenant,
    ) -> Result<Result<Created, counterfoil_tenant::Invalid>, Error> {
        Ok(Ok(match key {
            "again" => Created::Again(tenant(9)),
            "other" => Created::Other { field: "zone" },
            _ => Created::First(tenant(9)),
        }))
    }

    async fn readiness(&self) -> Readiness {
        *self.asked_ready.lock() += 1;
        let durability = Durability {
            fsync: true,
            full_page_writes: true,
            synchronous_commit: "on".to_owned(),
        };
        Readiness {
            database: Ok(150_018),
            durability: Some(durability),
            schema: Ok(()),
        }
    }

    fn render_metrics(&self, out: &mut String) {
        out.push_str("# TYPE counterfoil_lane_waiting_intents gauge\ncounterfoil_lane_waiting_intents{lane=\"0\"} 0\n");
    }

    async fn shutdown(&self, by: Instant) -> bool {
        *self.time_to_land.lock() = Some(Instant::now() < by);
        true
    }
}

fn exists(code: &str) -> bool {
    !code.starts_with("nobody")
}

fn tenant(id: i64) -> Tenant {
    Tenant {
        id: TenantId(id),
        name: format!("Tenant {id}"),
        zone: "UTC".to_owned(),
        collation: "C".to_owned(),
        rounding: counterfoil_tenant::Rounding::default(),
        created_at: "2026-03-01T12:00:00Z".parse().unwrap(),
    }
}

/// What came back.
pub struct Got {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The code of a problem document, which is checked for being one.
    #[track_caller]
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let problem = self.json();
        let code = problem["code"].as_str().unwrap().to_owned();
        assert_eq!(problem["status"], self.status.as_u16());
        assert_eq!(problem["type"], format!("/codes#{code}"));
        assert!(
            problem["title"].is_string() && problem["detail"].is_string(),
            "{problem}"
        );
        code
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub struct Client {
    pub app: Arc<App<Fake>>,
}

impl Client {
    pub fn new() -> Self {
        Self::with(Limits::default())
    }

    pub fn with(limits: Limits) -> Self {
        Self {
            app: Arc::new(App::new(Fake::new(), limits)),
        }
    }

    /// The keys of the intents that came through.
    pub fn taken(&self) -> Vec<String> {
        self.app.engine().taken.lock().clone()
    }

    pub fn answer(&self, answer: Answer) {
        *self.app.engine().answer.lock() = answer;
    }

    /// A request with the tenant's key and no body.
    pub fn ask(&self, method: Method, path: &str) -> Ask<'_> {
        let request = Request::builder().method(method).uri(path);
        let ask = Ask { client: self, request }.header("host", "localhost");
        ask.header("authorization", &format!("Bearer {TENANT_KEY}"))
    }

    pub fn get(&self, path: &str) -> Ask<'_> {
        self.ask(Method::GET, path)
    }

    /// A request with the tenant's key and a JSON body to come.
    pub fn post(&self, path: &str) -> Ask<'_> {
        self.ask(Method::POST, path).header("content-type", "application/json")
    }
}

/// A request being put together.
pub struct Ask<'c> {
    client: &'c Client,
    request: http::request::Builder,
}

impl Ask<'_> {
    /// Adds a header; a second of the same name stands beside the first.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    /// Puts a header in the place of those of the same name.
    pub fn instead(mut self, name: &'static str, value: &str) -> Self {
        self.request.headers_mut().unwrap().insert(name, value.parse().unwrap());
        self
    }

    pub fn without(mut self, name: &str) -> Self {
        self.request.headers_mut().unwrap().remove(name);
        self
    }

    pub async fn send(self, body: impl Into<Bytes>) -> Got {
        let request = self.request.body(Full::new(body.into())).unwrap();
        let (parts, body) = self.client.app.handle(request).await.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Got {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    pub async fn empty(self) -> Got {
        self.send(Bytes::new()).await
    }
}
