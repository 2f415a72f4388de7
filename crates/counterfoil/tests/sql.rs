//! Every statement, the schema it works on, and the plans of the hot ones: on the oldest server and
//! on the newest.

mod catalogue;
mod plans;
mod statements;

use counterfoil_pg::{Client, Role, Scope, TenantId, Tls, connect_admin};
use counterfoil_test::TestDatabase;

/// A session of this role, outside of every pool.
async fn session(test: &TestDatabase, role: Role) -> Client {
    connect_admin(&test.settings.config(role), &Tls::default())
        .await
        .expect("the role may connect")
}

/// What a transaction of this role sets first; the pools do it for the product.
fn scope(role: Role) -> &'static str {
    match role {
        Role::App | Role::Report => "SET LOCAL counterfoil.tenant = '1'",
        Role::Lane => "SET LOCAL counterfoil.tenants = '{1,2,3}'",
        Role::Owner | Role::Ops => "SELECT 1",
    }
}

/// Stub generations are there only once somebody has rotated.
async fn with_generations(test: &TestDatabase) {
    let database = test.database();
    let generations = counterfoil_intent::Generations::load(&database)
        .await
        .expect("the retention");
    generations.rotate(&database).await.expect("a rotation");
    // Proves that the scope is worked with as the product does it.
    let scope = Scope::Tenant(TenantId(1));
    database
        .pool(Role::App)
        .begin(&scope)
        .await
        .expect("a transaction")
        .rollback()
        .await;
    database.close();
}
