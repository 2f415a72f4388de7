use std::time::{Duration, Instant};

use counterfoil_pg::{Database, Role, Scope, TenantId, attempt};
use counterfoil_tenant::{ApiKey, Authenticator, Caller, KeyInfo, Label, TTL, create_key, list_keys, revoke_key};
use counterfoil_test::{Server, database};

const ALL: &Scope = &Scope::Installation;

async fn keys(db: &Database, caller: Caller) -> Vec<KeyInfo> {
    let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
    list_keys(ALL, &tx, caller, None, 100).await.unwrap()
}

async fn revoke(db: &Database, id: i64) -> Option<KeyInfo> {
    db.pool(Role::Ops)
        .run(ALL, |tx| attempt(revoke_key(ALL, tx, id)))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_key_speaks_for_its_tenant_or_for_operators() {
    for server in Server::ALL {
        let test = database(server).await;
        let (a, b) = (test.tenant("a").await, test.tenant("b").await);
        let (of_a, of_b, operator) = (
            test.tenant_key(a).await,
            test.tenant_key(b).await,
            test.operator_key().await,
        );
        let authenticator = Authenticator::new(test.database());
        for _ in 0..2 {
            assert_eq!(
                authenticator.check(of_a.token()).await.unwrap(),
                Some(Caller::Tenant(a))
            );
            assert_eq!(
                authenticator.check(of_b.token()).await.unwrap(),
                Some(Caller::Tenant(b))
            );
            assert_eq!(
                authenticator.check(operator.token()).await.unwrap(),
                Some(Caller::Operator)
            );
            assert_eq!(authenticator.check(ApiKey::generate().token()).await.unwrap(), None);
        }
    }
}

#[tokio::test]
async fn a_key_of_a_tenant_that_is_not_there_is_not_made() {
    let test = database(Server::Pg15).await;
    let db = test.database();
    let (key, label) = (ApiKey::generate(), Label::new("").unwrap());
    let nobody = Caller::Tenant(TenantId(7));
    let made = db
        .pool(Role::Ops)
        .run(ALL, |tx| attempt(create_key(ALL, tx, &key, nobody, &label)))
        .await
        .unwrap();
    assert_eq!(made, None);
    assert_eq!(Authenticator::new(db).check(key.token()).await.unwrap(), None);
}

#[tokio::test]
async fn keys_are_listed_by_holder_without_their_secret() {
    let test = database(Server::Pg18).await;
    let a = test.tenant("a").await;
    let (first, second, operator) = (
        test.tenant_key(a).await,
        test.tenant_key(a).await,
        test.operator_key().await,
    );
    let db = test.database();
    let prefixes = |keys: &[KeyInfo]| keys.iter().map(|key| key.prefix.clone()).collect::<Vec<_>>();
    let of_a = keys(&db, Caller::Tenant(a)).await;
    assert_eq!(prefixes(&of_a), [first.prefix(), second.prefix()]);
    assert!(
        of_a.iter()
            .all(|key| key.tenant == Some(a) && key.revoked_at.is_none() && key.label == "test")
    );
    assert_eq!(prefixes(&keys(&db, Caller::Operator).await), [operator.prefix()]);

    let tx = db.pool(Role::Ops).begin(ALL).await.unwrap();
    let rest = list_keys(ALL, &tx, Caller::Tenant(a), Some(of_a[0].id), 100)
        .await
        .unwrap();
    assert_eq!(rest, of_a[1..]);

    // Nowhere in the database is there a token.
    let stored: String = test
        .admin()
        .await
        .query_one("SELECT string_agg(k::text, ' ') FROM counterfoil.api_key AS k", &[])
        .await
        .unwrap()
        .get(0);
    for key in [first, second, operator] {
        assert!(
            !stored.contains(&key.token()[key.prefix().len()..]) && stored.contains(key.prefix()),
            "{stored}"
        );
    }
}

#[tokio::test]
async fn a_revoked_key_stops_within_its_time_in_every_server() {
    let test = database(Server::Pg15).await;
    let a = test.tenant("a").await;
    let key = test.tenant_key(a).await;
    let db = test.database();
    let servers = [Authenticator::new(db.clone()), Authenticator::new(test.database())];
    for server in &servers {
        assert_eq!(server.check(key.token()).await.unwrap(), Some(Caller::Tenant(a)));
    }
    let id = keys(&db, Caller::Tenant(a)).await[0].id;
    let revoked = revoke(&db, id).await.unwrap();
    let from = Instant::now();
    for server in &servers {
        // Asked all the while, as a busy key is.
        while server.check(key.token()).await.unwrap().is_some() {
            assert!(from.elapsed() < TTL + Duration::from_millis(500), "still let in");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    // Once more changes nothing, the time of the first included.
    assert!(revoked.revoked_at.is_some());
    assert_eq!(revoke(&db, id).await, Some(revoked));
    assert_eq!(revoke(&db, i64::MAX).await, None);
}

#[tokio::test]
async fn a_key_that_is_made_after_it_was_tried_is_known_within_its_time() {
    let test = database(Server::Pg15).await;
    let db = test.database();
    let (key, label) = (ApiKey::generate(), Label::new("late").unwrap());
    let authenticator = Authenticator::new(test.database());
    assert_eq!(authenticator.check(key.token()).await.unwrap(), None);
    db.pool(Role::Ops)
        .run(ALL, |tx| attempt(create_key(ALL, tx, &key, Caller::Operator, &label)))
        .await
        .unwrap();
    let from = Instant::now();
    while authenticator.check(key.token()).await.unwrap().is_none() {
        assert!(from.elapsed() < TTL + Duration::from_millis(500), "still not known");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn many_callers_with_one_key_ask_once_and_what_is_no_key_asks_never() {
    let test = database(Server::Pg15).await;
    let key = test.operator_key().await;
    let proxy = test.proxy().await;
    let authenticator = Authenticator::new(test.database_through(&proxy));
    for malformed in ["", "cf_", "Bearer x", &"f".repeat(67), &key.token().to_uppercase()] {
        assert_eq!(authenticator.check(malformed).await.unwrap(), None);
    }
    assert_eq!(proxy.seen().begins, 0);

    // The answer is held back until all of them wait for it.
    let hold = proxy.any().hold_text("counterfoil.api_key", 1);
    let callers: Vec<_> = (0..50)
        .map(|_| {
            let (authenticator, key) = (authenticator.clone(), key.clone());
            tokio::spawn(async move { authenticator.check(key.token()).await.unwrap() })
        })
        .collect();
    hold.reached().await;
    tokio::task::yield_now().await;
    hold.release();
    for caller in callers {
        assert_eq!(caller.await.unwrap(), Some(Caller::Operator));
    }
    assert_eq!(proxy.seen().begins, 1);
}

#[tokio::test]
async fn without_the_database_nobody_is_let_in_or_turned_away() {
    let test = database(Server::Pg15).await;
    let key = test.operator_key().await;
    let proxy = test.proxy().await;
    let authenticator = Authenticator::new(test.database_through(&proxy));
    proxy.shut();
    assert!(authenticator.check(key.token()).await.is_err());
    proxy.open();
    assert_eq!(authenticator.check(key.token()).await.unwrap(), Some(Caller::Operator));
    // What is known goes on being known for a while.
    proxy.shut();
    proxy.cut_all();
    assert_eq!(authenticator.check(key.token()).await.unwrap(), Some(Caller::Operator));
}

#[tokio::test]
async fn operators_are_told_which_tenants_there_are() {
    let test = database(Server::Pg15).await;
    let a = test.tenant("a").await;
    let authenticator = Authenticator::new(test.database());
    assert!(authenticator.tenant_exists(a).await.unwrap());
    assert!(!authenticator.tenant_exists(TenantId(a.0 + 1)).await.unwrap());
    assert!(!authenticator.tenant_exists(TenantId(-1)).await.unwrap());
}
