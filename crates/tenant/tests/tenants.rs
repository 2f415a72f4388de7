use counterfoil_pg::{Class, Database, Error, Role, Scope, TenantId, attempt};
use counterfoil_tenant::{Created, Invalid, NewTenant, Rounding, Tenant, create, create_once, get, list};
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

#[tokio::test]
async fn under_one_key_a_tenant_is_made_once() {
    for server in Server::ALL {
        let test = database(server).await;
        let db = test.database();
        let once = async |key: &'static str, new: &NewTenant| {
            db.pool(Role::Ops)
                .run(ALL, |tx| attempt(create_once(ALL, tx, key, new)))
                .await
                .unwrap()
                .unwrap()
        };
        let kiosk = NewTenant::new("Kiosk").unwrap();
        let Created::First(made) = once("k", &kiosk).await else {
            panic!("there is none yet")
        };
        // Spelt otherwise it is the same.
        let same = NewTenant::new(" Kiosk ").unwrap().zone("utc").unwrap();
        assert_eq!(once("k", &same).await, Created::Again(made.clone()));
        for (new, field) in [
            (NewTenant::new("Kiosk 2").unwrap(), "name"),
            (kiosk.clone().zone("Asia/Tokyo").unwrap(), "zone"),
            (kiosk.clone().collation("POSIX").unwrap(), "collation"),
            (kiosk.clone().rounding(Rounding::Up), "rounding"),
        ] {
            assert_eq!(once("k", &new).await, Created::Other { field });
        }
        let Created::First(second) = once("l", &kiosk).await else {
            panic!("another key, another tenant")
        };
        assert_ne!(second.id, made.id);
    }
}

/// Both look before either has written.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "the administrator looks from outside")]
async fn of_two_at_once_under_one_key_one_is_to_look_again() {
    let test = database(Server::Pg18).await;
    let db = test.database();
    let new = NewTenant::new("Kiosk").unwrap();
    let first = db.pool(Role::Ops).begin(ALL).await.unwrap();
    let made = create_once(ALL, &first, "k", &new).await.unwrap().unwrap();
    assert!(matches!(made, Created::First(_)), "{made:?}");
    let second = db.pool(Role::Ops).begin(ALL).await.unwrap();
    let admin = test.admin().await;
    let commit_later = async {
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE datname = current_database() AND wait_event_type = 'Lock'";
        while admin.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        first.commit().await.unwrap();
    };
    let (late, ()) = futures_util::future::join(create_once(ALL, &second, "k", &new), commit_later).await;
    assert_eq!(late.unwrap_err().class(), Class::Unique);
    second.rollback().await;
    let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
    assert_eq!(list(ALL, &tx, None, 10).await.unwrap().len(), 1);
    tx.rollback().await;
}
