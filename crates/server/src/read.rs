//! Reads of what belongs to a tenant.

use std::borrow::Cow;
use std::time::Duration;

use counterfoil_intent::Key;
use counterfoil_ledger::AccountCode;
use counterfoil_ledger::read::{AboutView, AccountView, BalanceAt, EntryView, HoldView, Money, Order, TransferView};
use counterfoil_pg::TenantId;
use http::StatusCode;
use jiff::Timestamp;
use uuid::Uuid;

use crate::answer;
use crate::app::{Answered, App, fault, json};
use crate::codes;
use crate::engine::{AsOf, Engine};
use crate::json::{self, Object};
use crate::param::{self, Query, bad_cursor, seal_cursor};
use crate::problem::{Problem, Refused};
use crate::route::{Action, Match};

impl<E: Engine> App<E> {
    pub(crate) async fn read(&self, found: &Match<'_>, query: &Query<'_>) -> Answered {
        let tenant = found
            .tenant
            .expect("every route that reads a tenant's rows is of a tenant");
        let param = found.param.unwrap_or_default();
        match found.spec.action {
            Action::Report => self.report(tenant, query).await,
            Action::Stub => self.stub(tenant, param).await,
            Action::Accounts => self.accounts(tenant, query).await,
            Action::Account => self.account(tenant, &account_code(param)?, query).await,
            Action::Entries => self.entries(tenant, &account_code(param)?, query).await,
            Action::Holds => self.holds(tenant, &account_code(param)?, query).await,
            Action::Transfer => {
                let id = param::id(param, "transfer")?;
                let found = self
                    .engine
                    .transfer(tenant, id)
                    .await
                    .map_err(|error| fault("read a transfer", &error))?;
                let found = found.ok_or_else(|| Problem::not_found("transfer"))?;
                Ok(json(json::object(|out| transfer(out, &found))))
            }
            Action::Hold => {
                let id = param::id(param, "hold")?;
                let found = self
                    .engine
                    .hold(tenant, id)
                    .await
                    .map_err(|error| fault("read a hold", &error))?;
                let found = found.ok_or_else(|| Problem::not_found("hold"))?;
                Ok(json(json::object(|out| hold(out, &found))))
            }
            action => unreachable!("{action:?} reads nothing of a tenant's"),
        }
    }

    async fn stub(&self, tenant: TenantId, param: &str) -> Answered {
        let key = Key::parse(&param::decode(param, "key")?).map_err(Problem::invalid)?;
        let state = self
            .engine
            .stub(tenant, &key)
            .await
            .map_err(|error| fault("look for a stub", &error))?;
        Ok(json(answer::stub_state(&key, &state)))
    }

    async fn accounts(&self, tenant: TenantId, query: &Query<'_>) -> Answered {
        let limit = query.limit(self.limits.page)?;
        let after = query.cursor()?;
        let prefix = query.get("prefix").unwrap_or_default();
        let rows = self
            .engine
            .accounts(tenant, prefix, after.as_deref(), i64::from(limit) + 1)
            .await;
        let rows = rows.map_err(|error| fault("list accounts", &error))?;
        Ok(page("accounts", rows, limit, account, |last| last.code.clone()))
    }

    async fn account(&self, tenant: TenantId, code: &str, query: &Query<'_>) -> Answered {
        // Only these go through every entry of the account, however many there are.
        let mut turn = None;
        let at = match (query.time("as_of")?, query.time("effective_as_of")?) {
            (None, None) => {
                let found = self.engine.account(tenant, code).await;
                let found = found.map_err(|error| fault("read an account", &error))?;
                let found = found.ok_or_else(|| Problem::not_found("account"))?;
                return Ok(json(json::object(|out| account(out, &found))));
            }
            (Some(at), None) => AsOf::Recorded(at),
            (None, Some(at)) => {
                turn = Some(self.slow_reads.take(tenant, 1).map_err(|_| too_many_reads())?);
                AsOf::Effective(at)
            }
            (Some(_), Some(_)) => {
                let detail = "ask by as_of or by effective_as_of, one at a time";
                return Err(Problem::bad_request(codes::QUERY_CONFLICT, "effective_as_of", detail));
            }
        };
        let found = self
            .engine
            .balance(tenant, code, at)
            .await
            .map_err(|error| fault("read a balance", &error))?;
        drop(turn);
        let found = found.ok_or_else(|| Problem::not_found("account"))?;
        Ok(json(json::object(|out| balance(out, code, &found, at))))
    }

    async fn entries(&self, tenant: TenantId, code: &str, query: &Query<'_>) -> Answered {
        let limit = query.limit(self.limits.page)?;
        let (order, mark) = match query.get("order") {
            None | Some("oldest") => (Order::OldestFirst, "o"),
            Some("newest") => (Order::NewestFirst, "n"),
            Some(_) => {
                return Err(Problem::bad_request(
                    codes::QUERY_ORDER,
                    "order",
                    "the order is oldest or newest",
                ));
            }
        };
        // A cursor of one order would skip most of the other.
        let after: Option<i64> = match query.cursor()? {
            None => None,
            Some(position) => {
                let version = position.strip_prefix(mark).and_then(|version| version.parse().ok());
                Some(version.ok_or_else(bad_cursor)?)
            }
        };
        let rows = self
            .engine
            .entries(tenant, code, order, after, i64::from(limit) + 1)
            .await;
        let rows = rows.map_err(|error| fault("read a statement", &error))?;
        let rows = rows.ok_or_else(|| Problem::not_found("account"))?;
        Ok(page("entries", rows, limit, entry, |last| {
            format!("{mark}{}", last.version)
        }))
    }

    async fn holds(&self, tenant: TenantId, code: &str, query: &Query<'_>) -> Answered {
        let limit = query.limit(self.limits.page)?;
        let after: Option<Uuid> = match query.cursor()? {
            None => None,
            Some(position) => Some(position.parse().map_err(|_| bad_cursor())?),
        };
        let rows = self.engine.holds(tenant, code, after, i64::from(limit) + 1).await;
        let rows = rows.map_err(|error| fault("list holds", &error))?;
        let rows = rows.ok_or_else(|| Problem::not_found("account"))?;
        Ok(page("holds", rows, limit, hold, |last| last.id.to_string()))
    }
}

fn too_many_reads() -> Refused {
    let detail =
        "as many of the tenant's questions by effective_as_of are being worked on as may be at once; ask again";
    let mut problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, codes::TOO_MANY_READS, "", detail);
    problem.extra.retry_after = Some(Duration::from_secs(1));
    problem
}

/// What no account can be called names none.
fn account_code(param: &str) -> Result<Cow<'_, str>, Refused> {
    let code = param::decode(param, "account")?;
    if AccountCode::new(&code).is_some() {
        Ok(code)
    } else {
        Err(Problem::not_found("account"))
    }
}

/// A page of a list. `rows` has one more than `limit` where there is a next page.
pub(crate) fn page<T>(
    name: &str,
    mut rows: Vec<T>,
    limit: u32,
    fill: impl Fn(&mut Object<'_>, &T),
    position: impl Fn(&T) -> String,
) -> http::Response<http_body_util::Full<bytes::Bytes>> {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next = rows.last().filter(|_| more).map(|last| seal_cursor(&position(last)));
    json(json::object(|out| {
        out.list(name, &rows, fill);
        out.maybe_text("next_cursor", next.as_deref());
    }))
}

impl Object<'_> {
    fn maybe_money(&mut self, name: &str, value: Option<Money>) {
        match value {
            Some(value) => self.plain(name, value),
            None => self.raw(name, "null"),
        }
    }

    fn maybe_time(&mut self, name: &str, value: Option<Timestamp>) {
        match value {
            Some(value) => self.time(name, value),
            None => self.raw(name, "null"),
        }
    }

    fn maybe_id(&mut self, name: &str, value: Option<Uuid>) {
        match value {
            Some(value) => self.plain(name, value),
            None => self.raw(name, "null"),
        }
    }

    /// Metadata comes from the database as JSON.
    fn metadata(&mut self, value: Option<&str>) {
        self.raw("metadata", value.unwrap_or("null"));
    }

    fn about(&mut self, about: &AboutView) {
        self.maybe_text("description", about.description.as_deref());
        self.maybe_id("reverses", about.reverses);
        self.maybe_id("reversed_by", about.reversed_by);
        self.maybe_id("captures", about.captures);
    }
}

fn account(out: &mut Object<'_>, account: &AccountView) {
    out.text("account", &account.code);
    out.text("asset", account.asset.as_str());
    out.plain("posted", account.posted);
    out.plain("held", account.held);
    out.plain("available", account.available);
    out.maybe_money("floor", account.floor);
    out.maybe_money("ceiling", account.ceiling);
    out.number("version", account.version);
    out.time("opened_at", account.opened_at);
    out.time("changed_at", account.changed_at);
    out.maybe_time("closed_at", account.closed_at);
    out.metadata(account.metadata.as_deref());
}

fn balance(out: &mut Object<'_>, code: &str, balance: &BalanceAt, at: AsOf) {
    out.text("account", code);
    out.text("asset", balance.asset.as_str());
    out.plain("posted", balance.posted);
    match at {
        AsOf::Recorded(at) => out.time("as_of", at),
        AsOf::Effective(at) => out.time("effective_as_of", at),
    }
    out.time("opened_at", balance.opened_at);
}

fn entry(out: &mut Object<'_>, entry: &EntryView) {
    out.number("version", entry.version);
    out.plain("transfer", entry.transfer);
    out.plain("amount", entry.amount);
    out.plain("posted", entry.posted);
    out.time("effective_at", entry.effective_at);
    out.time("recorded_at", entry.recorded_at);
    out.about(&entry.about);
}

fn transfer(out: &mut Object<'_>, transfer: &TransferView) {
    out.plain("transfer", transfer.id);
    out.list("entries", &transfer.entries, |out, leg| {
        out.text("account", &leg.account);
        out.text("asset", leg.asset.as_str());
        out.plain("amount", leg.amount);
        out.number("version", leg.version);
        out.plain("posted", leg.posted);
    });
    out.time("effective_at", transfer.effective_at);
    out.time("recorded_at", transfer.recorded_at);
    out.about(&transfer.about);
    out.metadata(transfer.metadata.as_deref());
}

fn hold(out: &mut Object<'_>, hold: &HoldView) {
    out.plain("hold", hold.id);
    out.text("account", &hold.account);
    out.text("asset", hold.asset.as_str());
    out.plain("amount", hold.amount);
    out.plain("captured", hold.captured);
    out.text("state", hold.state.as_str());
    out.maybe_time("expires_at", hold.expires_at);
    out.maybe_text("note", hold.note.as_deref());
    out.time("recorded_at", hold.recorded_at);
    out.time("changed_at", hold.changed_at);
}
