//! What the server asks of the rooms below, as one seam: the tests of this crate put something of
//! their own behind it and need no database.

use std::future::Future;

use counterfoil_intent::{Answer, Intent, Key, Kinds, Lanes, StubState};
use counterfoil_pg::{Database, Error, Role, Scope, TenantId, attempt};
use counterfoil_tenant::{Authenticator, Caller, Invalid, NewTenant, Tenant, Unavailable};

use crate::ready::Readiness;

/// Everything that is not HTTP.
pub trait Engine: Send + Sync + 'static {
    fn kinds(&self) -> &Kinds;

    /// Whom a key speaks for.
    fn check(&self, secret: &str) -> impl Future<Output = Result<Option<Caller>, Unavailable>> + Send;

    fn tenant_exists(&self, tenant: TenantId) -> impl Future<Output = Result<bool, Unavailable>> + Send;

    /// Answers in the order of the intents.
    fn submit(&self, intents: Vec<Intent>) -> impl Future<Output = Vec<Answer>> + Send;

    fn stub(&self, tenant: TenantId, key: &Key) -> impl Future<Output = Result<StubState, Error>> + Send;

    fn tenants(
        &self,
        after: Option<TenantId>,
        limit: u16,
    ) -> impl Future<Output = Result<Vec<Tenant>, Error>> + Send;

    fn tenant_create(&self, new: NewTenant) -> impl Future<Output = Result<Result<Tenant, Invalid>, Error>> + Send;

    fn readiness(&self) -> impl Future<Output = Readiness> + Send;

    /// Appends what the rooms below count, in the text format of Prometheus.
    fn render_metrics(&self, out: &mut String);

    /// Lands what was accepted; whether all of it came to its end.
    fn shutdown(&self) -> impl Future<Output = bool> + Send;
}

type Migrations = &'static [(&'static str, &'static str)];

/// The engine of the product.
pub struct Live {
    pub database: Database,
    pub lanes: Lanes,
    pub auth: Authenticator,
    /// Every migration of this version, for `/readyz`.
    pub migrations: Vec<Migrations>,
    /// More for `/metrics`: workers, pools.
    pub metrics: Vec<Box<dyn Fn(&mut String) + Send + Sync>>,
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

    async fn stub(&self, tenant: TenantId, key: &Key) -> Result<StubState, Error> {
        self.lanes.stub(tenant, key).await
    }

    async fn tenants(&self, after: Option<TenantId>, limit: u16) -> Result<Vec<Tenant>, Error> {
        let scope = Scope::Installation;
        let tx = self.database.pool(Role::Ops).begin(&scope).await?;
        let rows = counterfoil_tenant::list(&scope, &tx, after, limit).await?;
        tx.rollback().await;
        Ok(rows)
    }

    async fn tenant_create(&self, new: NewTenant) -> Result<Result<Tenant, Invalid>, Error> {
        let (scope, new) = (&Scope::Installation, &new);
        let ops = self.database.pool(Role::Ops);
        ops.run(scope, |tx| attempt(async move { counterfoil_tenant::create(scope, tx, new).await })).await
    }

    async fn readiness(&self) -> Readiness {
        let (version, durability) = match self.database.server_version().await {
            Ok(version) => (Ok(version), self.database.durability().await.ok()),
            Err(error) => (Err(crate::app::chain(&error)), None),
        };
        let schema = match &version {
            Ok(_) => counterfoil_migrate::require(&self.database, &self.migrations).await,
            Err(_) => Ok(()),
        };
        Readiness { database: version, durability, schema: schema.map_err(|error| error.to_string()) }
    }

    fn render_metrics(&self, out: &mut String) {
        self.lanes.metrics().render(out);
        for more in &self.metrics {
            more(out);
        }
    }

    async fn shutdown(&self) -> bool {
        self.lanes.shutdown().await
    }
}
