use counterfoil_pg::{Database, Error, Role, Scope, TenantId, attempt};
use counterfoil_tenant::{Invalid, NewTenant, Rounding, Tenant, create, get, list};
use counterfoil_test::{Server, database};

const ALL: &Scope = &Scope::Installation;

async fn make(db: &Database, new: &NewTenant) -> Result<Result<Tenant, Invalid>, Error> {
    db.pool(Role::Ops).run(ALL, |tx| attempt(create(ALL, tx, new))).await
}

#[tokio::test]
async fn a_tenant_is_made_with_its_settings_and_read_back() {
    for server in Server::ALL {
        let test = database(server).await;
        let db = test.database();
        let new = NewTenant::new("Kiosk")
            .unwrap()
            .zone("asia/shanghai")
            .unwrap()
            .rounding(Rounding::HalfEven);
        let made = make(&db, &new).await.unwrap().unwrap();
        assert_eq!(
            (made.name.as_str(), made.zone.as_str(), made.rounding),
            ("Kiosk", "Asia/Shanghai", Rounding::HalfEven)
        );
        assert_eq!(made.collation, "C");

        let scope = Scope::Tenant(made.id);
        let tx = db.pool(Role::App).begin(&scope).await.unwrap();
        assert_eq!(get(&scope, &tx, made.id).await.unwrap(), Some(made.clone()));
        tx.rollback().await;
        let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
        assert_eq!(get(ALL, &tx, made.id).await.unwrap(), Some(made));
        assert_eq!(get(ALL, &tx, TenantId(i64::MAX)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn every_rounding_is_one_of_the_tables() {
    let test = database(Server::Pg15).await;
    let db = test.database();
    for rounding in Rounding::ALL {
        let made = make(&db, &NewTenant::new("x").unwrap().rounding(rounding))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(made.rounding, rounding);
    }
}

#[tokio::test]
async fn a_collation_is_one_that_the_server_has() {
    let test = database(Server::Pg15).await;
    let db = test.database();
    let with = |collation| NewTenant::new("x").unwrap().collation(collation).unwrap();
    // Debian's 15 has ICU.
    assert_eq!(
        make(&db, &with("zh-x-icu")).await.unwrap().unwrap().collation,
        "zh-x-icu"
    );
    let refused = make(&db, &with("tlh-x-icu'--")).await.unwrap().unwrap_err();
    assert_eq!(refused.field, "collation");
    let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
    assert_eq!(list(ALL, &tx, None, 10).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_list_goes_on_where_it_stopped() {
    let test = database(Server::Pg18).await;
    let mut made = Vec::new();
    for i in 0..5 {
        made.push(test.tenant(&format!("t{i}")).await);
    }
    let db = test.database();
    let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
    let mut seen: Vec<TenantId> = Vec::new();
    loop {
        let page = list(ALL, &tx, seen.last().copied(), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 2);
        seen.extend(page.iter().map(|tenant| tenant.id));
    }
    assert_eq!(seen, made);
}
