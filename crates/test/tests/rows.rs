//! Something to write: the name of a tenant.

use counterfoil_pg::{Database, Error, Role, Scope, Sql, TenantId, Tx, Type};
use counterfoil_test::TestDatabase;

pub static RENAME: &Sql = &Sql {
    name: "rename",
    text: "UPDATE counterfoil.tenant SET name = $2 WHERE tenant_id = $1",
    params: &[Type::INT8, Type::TEXT],
};

pub static NAME: &Sql = &Sql {
    name: "name",
    text: "SELECT name FROM counterfoil.tenant WHERE tenant_id = $1",
    params: &[Type::INT8],
};

pub async fn begin(db: &Database) -> Result<Tx, Error> {
    db.pool(Role::Ops).begin(&Scope::Installation).await
}

pub async fn rename(tx: &Tx, id: TenantId, name: &str) -> Result<(), Error> {
    tx.execute(RENAME, &[&id.0, &name]).await.map(drop)
}

/// The name there is, asked without any proxy.
pub async fn name(test: &TestDatabase, id: TenantId) -> String {
    let tx = begin(&test.database()).await.unwrap();
    tx.query_one(NAME, &[&id.0]).await.unwrap().get(0)
}
