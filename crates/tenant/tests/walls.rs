use counterfoil_pg::{Role, Scope, Sql, TenantId, Type};
use counterfoil_tenant::get;
use counterfoil_test::{Server, database};

static COUNT: &Sql = &Sql {
    name: "count",
    text: "SELECT count(*) FROM counterfoil.tenant",
    params: &[],
};

static RENAME: &Sql = &Sql {
    name: "rename",
    text: "UPDATE counterfoil.tenant SET name = 'mine' WHERE tenant_id = $1",
    params: &[Type::INT8],
};

static KEYS: &Sql = &Sql {
    name: "keys",
    text: "SELECT count(*) FROM counterfoil.api_key",
    params: &[],
};

static FIND_ANY: &Sql = &Sql {
    name: "find",
    text: "SELECT holder FROM counterfoil.api_key LIMIT 1",
    params: &[],
};

#[tokio::test]
async fn each_role_sees_what_its_scope_allows() {
    for server in Server::ALL {
        let test = database(server).await;
        let (a, b, c) = (test.tenant("a").await, test.tenant("b").await, test.tenant("c").await);
        let db = test.database();
        let seen = async |role, scope: Scope| -> Result<i64, Option<String>> {
            let tx = db.pool(role).begin(&scope).await.unwrap();
            let count = tx
                .query_one(COUNT, &[])
                .await
                .map_err(|error| error.sqlstate().map(str::to_owned))?;
            Ok(count.get(0))
        };
        assert_eq!(seen(Role::App, Scope::Tenant(a)).await, Ok(1));
        assert_eq!(seen(Role::Report, Scope::Tenant(a)).await, Ok(1));
        assert_eq!(seen(Role::App, Scope::Tenant(TenantId(i64::MAX))).await, Ok(0));
        assert_eq!(seen(Role::Lane, Scope::tenants(vec![a, c])).await, Ok(2));
        assert_eq!(seen(Role::Lane, Scope::tenants(vec![])).await, Ok(0));
        assert_eq!(seen(Role::Ops, Scope::Installation).await, Ok(3));
        // Owned, but under FORCE ROW LEVEL SECURITY, and with no policy of its own.
        assert_eq!(seen(Role::Owner, Scope::Installation).await, Ok(0));
        // No scope, or the other kind: an error, not an empty answer. In a session that has had a
        // scope before, what SET LOCAL left behind is '', which is no number either.
        for (role, scope) in [
            (Role::App, Scope::Installation),
            (Role::Report, Scope::Installation),
            (Role::App, Scope::tenants(vec![a])),
        ] {
            let refused = seen(role, scope).await.unwrap_err();
            assert!(
                matches!(refused.as_deref(), Some("42704" | "22P02")),
                "{role:?}: {refused:?}"
            );
        }
        assert!(seen(Role::Lane, Scope::Tenant(b)).await.is_err());
    }
}

#[tokio::test]
async fn a_tenant_does_not_see_its_neighbour_by_id() {
    let test = database(Server::Pg15).await;
    let (a, b) = (test.tenant("a").await, test.tenant("b").await);
    let db = test.database();
    let scope = Scope::Tenant(a);
    let tx = db.pool(Role::App).begin(&scope).await.unwrap();
    assert_eq!(get(&scope, &tx, b).await.unwrap(), None);
    assert_eq!(get(&scope, &tx, a).await.unwrap().map(|tenant| tenant.id), Some(a));
}

#[tokio::test]
async fn only_ops_changes_tenants_and_reads_keys() {
    for server in Server::DIRECT {
        let test = database(server).await;
        let a = test.tenant("a").await;
        test.tenant_key(a).await;
        let db = test.database();
        for (role, scope) in [
            (Role::App, Scope::Tenant(a)),
            (Role::Report, Scope::Tenant(a)),
            (Role::Lane, Scope::tenants(vec![a])),
        ] {
            for (what, params) in [(RENAME, &[&a.0 as _][..]), (KEYS, &[]), (FIND_ANY, &[])] {
                let tx = db.pool(role).begin(&scope).await.unwrap();
                let error = tx.query(what, params).await.unwrap_err();
                // The report role cannot even try to write.
                assert!(
                    matches!(error.sqlstate(), Some("42501" | "25006")),
                    "{role:?} {what:?}: {error:?}"
                );
            }
        }
        let tx = db.pool(Role::Ops).begin(&Scope::Installation).await.unwrap();
        assert_eq!(tx.query_one(KEYS, &[]).await.unwrap().get::<_, i64>(0), 1);
    }
}
