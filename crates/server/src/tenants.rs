//! Tenants, for operators.

use std::borrow::Cow;

use bytes::Bytes;
use counterfoil_pg::TenantId;
use counterfoil_tenant::{Created, Invalid, NewTenant, Rounding, Tenant};
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use hyper::body::Body;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::time::Instant;

use crate::answer;
use crate::app::{Answered, App, expects, fault, json};
use crate::body::{self, NOBODY};
use crate::codes;
use crate::engine::Engine;
use crate::head::{self, Format, Head};
use crate::items;
use crate::json::{self, Object};
use crate::param::{Query, bad_cursor};
use crate::problem::{Problem, Refused};
use crate::read::page;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted<'a> {
    #[serde(borrow)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    zone: Option<Cow<'a, str>>,
    #[serde(borrow)]
    collation: Option<Cow<'a, str>>,
    #[serde(borrow)]
    rounding: Option<Cow<'a, str>>,
}

impl Wanted<'_> {
    fn checked(self) -> Result<NewTenant, Invalid> {
        let mut new = NewTenant::new(&self.name)?;
        if let Some(zone) = &self.zone {
            new = new.zone(zone)?;
        }
        if let Some(collation) = &self.collation {
            new = new.collation(collation)?;
        }
        if let Some(rounding) = &self.rounding {
            new = new.rounding(rounding.parse::<Rounding>()?);
        }
        Ok(new)
    }
}

impl<E: Engine> App<E> {
    pub(crate) async fn tenants(&self, query: &Query<'_>) -> Answered {
        let limit = query.limit(self.limits.page)?;
        let after = match query.cursor()? {
            None => None,
            Some(position) => Some(TenantId(position.parse().map_err(|_| bad_cursor())?)),
        };
        // One more than is shown tells whether there is a next page.
        let more = u16::try_from(limit + 1).unwrap_or(u16::MAX);
        let rows = self
            .engine
            .tenants(after, more)
            .await
            .map_err(|error| fault("list tenants", &error))?;
        Ok(page("tenants", rows, limit, tenant, |last| last.id.to_string()))
    }

    /// Not an intent: it belongs to no tenant yet, so there is nowhere to keep a stub. Its key is kept
    /// with the tenant instead.
    pub(crate) async fn tenant_create<B>(&self, parts: &Parts, body: B) -> Answered
    where
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let header = match plain_json(parts) {
            Ok(key) => key,
            Err(problem) => {
                body::leave(body, &self.limits, expects(parts));
                return Err(problem);
            }
        };
        let whole = body::read(body, &self.limits, &self.budget, NOBODY, expects(parts)).await?;
        let raw: &RawValue = items::value(items::utf8(&whole.bytes)?)?;
        let wanted: Wanted<'_> = counterfoil_intent::Kinds::read_object(raw).map_err(Problem::invalid)?;
        let key = counterfoil_intent::one_key(header, wanted.key.as_deref()).map_err(Problem::invalid)?;
        let new = wanted.checked().map_err(invalid)?;
        let created = self
            .engine
            .tenant_create(&key.to_string(), new)
            .await
            .map_err(|error| fault("make a tenant", &error))?;
        let shown = |made| json(json::object(|out| tenant(out, made)));
        match created.map_err(invalid)? {
            Created::First(made) => {
                let mut response = shown(&made);
                *response.status_mut() = StatusCode::CREATED;
                Ok(response)
            }
            Created::Again(found) => {
                let mut response = shown(&found);
                let replayed = HeaderValue::from_static("true");
                response.headers_mut().insert(answer::REPLAYED.clone(), replayed);
                Ok(response)
            }
            Created::Other { field } => Err(answer::key_reused(field)),
        }
    }
}

/// The key, if a header says it.
fn plain_json(parts: &Parts) -> Result<Option<&str>, Refused> {
    let head = Head::read(&parts.headers, Instant::now())?;
    if head.format != Some(Format::Json) {
        return Err(head::media_type());
    }
    Ok(head.key)
}

fn invalid(invalid: Invalid) -> Refused {
    Problem::bad_request(codes::TENANT_INVALID, invalid.field, invalid.message)
}

fn tenant(out: &mut Object<'_>, tenant: &Tenant) {
    out.number("id", tenant.id.0);
    out.text("name", &tenant.name);
    out.text("zone", &tenant.zone);
    out.text("collation", &tenant.collation);
    out.text("rounding", tenant.rounding.as_str());
    out.time("created_at", tenant.created_at);
}
