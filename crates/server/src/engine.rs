//! What the server asks of the rooms below, as one seam: the tests of this crate put something of
//! their own behind it and need no database.

use std::future::Future;
use std::time::{Duration, Instant};

use counterfoil_events::report::{self, Ask, Counts, Interval, Subject, TooLong};
use counterfoil_events::{Actors, Event, EventLanes};
use counterfoil_intent::{Answer, Intent, Key, Kinds, Lanes, StubState};
use counterfoil_ledger::read::{self, AccountView, BalanceAt, EntryView, HoldView, Order, TransferView};
use counterfoil_pg::{Class, Database, Error, Role, Scope, TenantId, Tx, attempt};
use counterfoil_tenant::{Authenticator, Caller, Created, Invalid, NewTenant, Tenant, Unavailable};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use crate::ready::Readiness;

/// Which past a balance is asked of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AsOf {
    /// By what had been recorded then.
    Recorded(Timestamp),
    /// By what was effective then.
    Effective(Timestamp),
}

/// Everything that is not HTTP.
pub trait Engine: Send + Sync + 'static {
    fn kinds(&self) -> &Kinds;

    /// Whom a key speaks for.
    fn check(&self, secret: &str) -> impl Future<Output = Result<Option<Caller>, Unavailable>> + Send;

    fn tenant_exists(&self, tenant: TenantId) -> impl Future<Output = Result<bool, Unavailable>> + Send;

    /// Answers in the order of the intents.
    fn submit(&self, intents: Vec<Intent>) -> impl Future<Output = Vec<Answer>> + Send;

    /// Hashes the actors of events.
    fn actors(&self) -> &Actors;

    /// Answers in the order of the events.
    fn store_events(
        &self,
        tenant: TenantId,
        events: Vec<Event>,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Vec<counterfoil_events::Answer>> + Send;

    /// Counts per interval; in the tenant's zone, where none is said.
    fn series(
        &self,
        tenant: TenantId,
        zone: Option<TimeZone>,
        ask: impl FnOnce(TimeZone) -> Ask + Send,
    ) -> impl Future<Output = Result<Result<Counts<Interval>, TooLong>, Error>> + Send;

    /// The subjects with most events.
    fn top(
        &self,
        tenant: TenantId,
        stream: &str,
        ends: (Option<Timestamp>, Option<Timestamp>),
        most: i64,
    ) -> impl Future<Output = Result<Counts<Subject>, Error>> + Send;

    fn stub(&self, tenant: TenantId, key: &Key) -> impl Future<Output = Result<StubState, Error>> + Send;

    fn account(&self, tenant: TenantId, code: &str) -> impl Future<Output = Result<Option<AccountView>, Error>> + Send;

    /// By code, those after `after`.
    fn accounts(
        &self,
        tenant: TenantId,
        prefix: &str,
        after: Option<&str>,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<AccountView>, Error>> + Send;

    fn balance(
        &self,
        tenant: TenantId,
        code: &str,
        at: AsOf,
    ) -> impl Future<Output = Result<Option<BalanceAt>, Error>> + Send;

    /// A statement beyond the version `after`; `None` without such an account.
    fn entries(
        &self,
        tenant: TenantId,
        code: &str,
        order: Order,
        after: Option<i64>,
        limit: i64,
    ) -> impl Future<Output = Result<Option<Vec<EntryView>>, Error>> + Send;

    /// The active holds of an account, those after `after`; `None` without such an account.
    fn holds(
        &self,
        tenant: TenantId,
        code: &str,
        after: Option<Uuid>,
        limit: i64,
    ) -> impl Future<Output = Result<Option<Vec<HoldView>>, Error>> + Send;

    fn transfer(&self, tenant: TenantId, id: Uuid) -> impl Future<Output = Result<Option<TransferView>, Error>> + Send;

    fn hold(&self, tenant: TenantId, id: Uuid) -> impl Future<Output = Result<Option<HoldView>, Error>> + Send;

    fn tenants(&self, after: Option<TenantId>, limit: u16) -> impl Future<Output = Result<Vec<Tenant>, Error>> + Send;

    /// Once for each key.
    fn tenant_create(
        &self,
        key: &str,
        new: NewTenant,
    ) -> impl Future<Output = Result<Result<Created, Invalid>, Error>> + Send;

    fn readiness(&self) -> impl Future<Output = Readiness> + Send;

    /// Appends what the rooms below count, in the text format of Prometheus.
    fn render_metrics(&self, out: &mut String);

    /// Lands what was accepted; whether all of it came to its end by then.
    fn shutdown(&self, by: Instant) -> impl Future<Output = bool> + Send;
}

/// Names and texts of a crate's migrations.
pub type Migrations = &'static [(&'static str, &'static str)];

/// Appends metrics in the text format of Prometheus.
pub type Render = Box<dyn Fn(&mut String) + Send + Sync>;

/// The engine of the product.
pub struct Live {
    pub database: Database,
    /// The same with connections of its own, for `/readyz`: whether there is work in the way of others
    /// is not what it is asked.
    pub probe: Database,
    pub lanes: Lanes,
    pub events: EventLanes,
    pub actors: Actors,
    pub auth: Authenticator,
    /// Every migration of this version, for `/readyz`.
    pub migrations: Vec<Migrations>,
    /// More for `/metrics`: workers, pools.
    pub metrics: Vec<Render>,
}

/// How long PostgreSQL may take to go through every entry of an account, in place of the five minutes
/// that reports have: somebody waits for the answer.
const SLOW_READ: Duration = Duration::from_secs(30);

impl Live {
    /// Begins a transaction that only looks.
    async fn look(&self, tenant: TenantId) -> Result<(Scope, Tx), Error> {
        let scope = Scope::Tenant(tenant);
        let tx = self.database.pool(Role::App).begin(&scope).await?;
        Ok((scope, tx))
    }
}

impl Engine for Live {
    fn kinds(&self) -> &Kinds {
        self.lanes.kinds()
    }

    async fn check(&self, secret: &str) -> Result<Option<Caller>, Unavailable> {
        self.auth.check(secret).await
    }

    async fn tenant_exists(&self, tenant: TenantId) -> Result<bool, Unavailable> {
        self.auth.tenant_exists(tenant).await
    }

    async fn submit(&self, intents: Vec<Intent>) -> Vec<Answer> {
        self.lanes.submit(intents).await
    }

    fn actors(&self) -> &Actors {
        &self.actors
    }

    async fn store_events(
        &self,
        tenant: TenantId,
        events: Vec<Event>,
        deadline: Option<Instant>,
    ) -> Vec<counterfoil_events::Answer> {
        self.events.submit(tenant, events, deadline).await
    }

    async fn series(
        &self,
        tenant: TenantId,
        zone: Option<TimeZone>,
        ask: impl FnOnce(TimeZone) -> Ask + Send,
    ) -> Result<Result<Counts<Interval>, TooLong>, Error> {
        let scope = Scope::Tenant(tenant);
        let tx = self.database.pool(Role::Report).begin(&scope).await?;
        tx.set_statement_timeout(SLOW_READ).await?;
        let zone = match zone {
            Some(zone) => zone,
            None => {
                let tenant = counterfoil_tenant::get(&scope, &tx, tenant).await?;
                // It was an IANA name when it was set; what this build does not know any more is UTC.
                tenant
                    .and_then(|tenant| TimeZone::get(&tenant.zone).ok())
                    .unwrap_or(TimeZone::UTC)
            }
        };
        let counts = report::series(&scope, &tx, tenant, ask(zone)).await?;
        tx.rollback().await;
        Ok(counts)
    }

    async fn top(
        &self,
        tenant: TenantId,
        stream: &str,
        ends: (Option<Timestamp>, Option<Timestamp>),
        most: i64,
    ) -> Result<Counts<Subject>, Error> {
        let scope = Scope::Tenant(tenant);
        let tx = self.database.pool(Role::Report).begin(&scope).await?;
        tx.set_statement_timeout(SLOW_READ).await?;
        let counts = report::top(&scope, &tx, tenant, stream, ends, most).await?;
        tx.rollback().await;
        Ok(counts)
    }

    async fn stub(&self, tenant: TenantId, key: &Key) -> Result<StubState, Error> {
        self.lanes.stub(tenant, key).await
    }

    async fn account(&self, tenant: TenantId, code: &str) -> Result<Option<AccountView>, Error> {
        let (scope, tx) = self.look(tenant).await?;
        let found = read::account(&scope, &tx, code).await?;
        tx.rollback().await;
        Ok(found)
    }

    async fn accounts(
        &self,
        tenant: TenantId,
        prefix: &str,
        after: Option<&str>,
        limit: i64,
    ) -> Result<Vec<AccountView>, Error> {
        let (scope, tx) = self.look(tenant).await?;
        let found = read::accounts(&scope, &tx, prefix, after, limit).await?;
        tx.rollback().await;
        Ok(found)
    }

    async fn balance(&self, tenant: TenantId, code: &str, at: AsOf) -> Result<Option<BalanceAt>, Error> {
        let (tx, found) = match at {
            AsOf::Recorded(at) => {
                let (scope, tx) = self.look(tenant).await?;
                let found = read::recorded_balance(&scope, &tx, code, at).await?;
                (tx, found)
            }
            AsOf::Effective(at) => {
                let scope = Scope::Tenant(tenant);
                let tx = self.database.pool(Role::Report).begin(&scope).await?;
                tx.set_statement_timeout(SLOW_READ).await?;
                let found = read::effective_balance(&scope, &tx, code, at).await?;
                (tx, found)
            }
        };
        tx.rollback().await;
        Ok(found)
    }

    async fn entries(
        &self,
        tenant: TenantId,
        code: &str,
        order: Order,
        after: Option<i64>,
        limit: i64,
    ) -> Result<Option<Vec<EntryView>>, Error> {
        let (scope, tx) = self.look(tenant).await?;
        let found = read::entries(&scope, &tx, code, order, after, limit).await?;
        tx.rollback().await;
        Ok(found)
    }

    async fn holds(
        &self,
        tenant: TenantId,
        code: &str,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Option<Vec<HoldView>>, Error> {
        let (scope, tx) = self.look(tenant).await?;
        let found = read::holds(&scope, &tx, code, after, limit).await?;
        // To hold nothing and not to be there are different answers.
        let known = !found.is_empty() || read::account(&scope, &tx, code).await?.is_some();
        tx.rollback().await;
        Ok(known.then_some(found))
    }

    async fn transfer(&self, tenant: TenantId, id: Uuid) -> Result<Option<TransferView>, Error> {
        let (scope, tx) = self.look(tenant).await?;
        let found = read::transfer(&scope, &tx, id).await?;
        tx.rollback().await;
        Ok(found)
    }

    async fn hold(&self, tenant: TenantId, id: Uuid) -> Result<Option<HoldView>, Error> {
        let (scope, tx) = self.look(tenant).await?;
        let found = read::hold(&scope, &tx, id).await?;
        tx.rollback().await;
        Ok(found)
    }

    async fn tenants(&self, after: Option<TenantId>, limit: u16) -> Result<Vec<Tenant>, Error> {
        let scope = Scope::Installation;
        let tx = self.database.pool(Role::Ops).begin(&scope).await?;
        let rows = counterfoil_tenant::list(&scope, &tx, after, limit).await?;
        tx.rollback().await;
        Ok(rows)
    }

    async fn tenant_create(&self, key: &str, new: NewTenant) -> Result<Result<Created, Invalid>, Error> {
        let (scope, new) = (&Scope::Installation, &new);
        let ops = self.database.pool(Role::Ops);
        let once = || {
            ops.run(scope, |tx| {
                attempt(async move { counterfoil_tenant::create_once(scope, tx, key, new).await })
            })
        };
        match once().await {
            // Somebody else has sent the same key at the same time, and theirs is there now.
            Err(error) if error.class() == Class::Unique => once().await,
            done => done,
        }
    }

    async fn readiness(&self) -> Readiness {
        let (version, durability) = match self.probe.server_version().await {
            Ok(version) => (Ok(version), self.probe.durability().await.ok()),
            Err(error) => (Err(crate::app::chain(&error)), None),
        };
        let schema = match &version {
            Ok(_) => counterfoil_migrate::require(&self.probe, &self.migrations).await,
            Err(_) => Ok(()),
        };
        Readiness {
            database: version,
            durability,
            schema: schema.map_err(|error| error.to_string()),
        }
    }

    fn render_metrics(&self, out: &mut String) {
        self.lanes.metrics().render(out);
        self.events.render_metrics(out);
        for more in &self.metrics {
            more(out);
        }
    }

    async fn shutdown(&self, by: Instant) -> bool {
        let (intents, events) = futures_util::join!(self.lanes.shutdown_by(by), self.events.shutdown_by(by));
        intents && events
    }
}
