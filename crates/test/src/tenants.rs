//! Tenants and keys for tests.

use counterfoil_pg::{Role, Scope, TenantId, attempt};
use counterfoil_tenant::{ApiKey, Caller, Label, NewTenant};

use crate::TestDatabase;

impl TestDatabase {
    /// A tenant with the default settings.
    pub async fn tenant(&self, name: &str) -> TenantId {
        self.tenant_with(NewTenant::new(name).expect("a name")).await
    }

    pub async fn tenant_with(&self, new: NewTenant) -> TenantId {
        let made = self
            .database()
            .pool(Role::Ops)
            .run(&Scope::Installation, |tx| {
                attempt(counterfoil_tenant::create(&Scope::Installation, tx, &new))
            })
            .await
            .expect("the transaction of a new tenant");
        made.expect("a tenant").id
    }

    /// A key of this tenant.
    pub async fn tenant_key(&self, tenant: TenantId) -> ApiKey {
        self.key(Caller::Tenant(tenant)).await
    }

    /// A key of whoever runs the installation.
    pub async fn operator_key(&self) -> ApiKey {
        self.key(Caller::Operator).await
    }

    async fn key(&self, caller: Caller) -> ApiKey {
        let (key, label) = (ApiKey::generate(), Label::new("test").expect("a label"));
        let made = self
            .database()
            .pool(Role::Ops)
            .run(&Scope::Installation, |tx| {
                attempt(counterfoil_tenant::create_key(
                    &Scope::Installation,
                    tx,
                    &key,
                    caller,
                    &label,
                ))
            })
            .await
            .expect("the transaction of a new key");
        made.expect("the tenant of the key is there");
        key
    }
}
