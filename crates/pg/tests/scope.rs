//! Promise 3, as far as it is ours: the scope of a transaction.

use counterfoil_pg::{Error, Pooler, Role, Scope, TenantId};

use crate::cluster::{BACKEND, Cluster, ONE, PASSWORD, THING_LIST, insert, variable_of};
use crate::on_both;

on_both!(
    without_a_scope_nothing_is_seen_or_written,
    inside_a_scope_other_tenants_do_not_exist,
    a_scope_ends_with_its_transaction,
    a_scope_set_for_the_session_is_refused,
    a_scope_set_for_the_role_is_refused,
);

async fn without_a_scope_nothing_is_seen_or_written(cluster: Cluster) {
    let db = cluster.database().await;
    // A policy is asked about rows: of an empty table nothing is seen, and nothing said.
    let other = "INSERT INTO counterfoil.thing (tenant_id, id) VALUES (9, 1)";
    db.admin.batch_execute(other).await.unwrap();
    for (role, scope) in [(Role::App, ONE), (Role::Lane, Scope::tenants(vec![TenantId(1)]))] {
        let narrow = db.narrow();
        let pool = narrow.pool(role);
        // On a connection that never had a scope, and on one that had: the setting is then there,
        // and empty.
        for _ in 0..2 {
            let tx = pool.begin(&Scope::Installation).await.unwrap();
            let error = tx.query(THING_LIST, &[]).await.expect_err("a read without a scope");
            let sqlstate = error.sqlstate().unwrap().to_owned();
            assert!(["42704", "22P02"].contains(&sqlstate.as_str()), "{sqlstate}");
            drop(tx);
            let tx = pool.begin(&Scope::Installation).await.unwrap();
            insert(&tx, 1, 1).await.expect_err("a write without a scope");
            drop(tx);
            let tx = pool.begin(&scope).await.unwrap();
            tx.query(THING_LIST, &[]).await.expect("a read with one");
            tx.commit().await.unwrap();
        }
    }
    assert_eq!(db.things().await, 1);
}

async fn inside_a_scope_other_tenants_do_not_exist(cluster: Cluster) {
    let db = cluster.database().await;
    let lane = db.database.pool(Role::Lane);
    let tx = lane
        .begin(&Scope::tenants(vec![TenantId(2), TenantId(1)]))
        .await
        .unwrap();
    insert(&tx, 1, 10).await.unwrap();
    insert(&tx, 2, 20).await.unwrap();
    let error = insert(&tx, 3, 30).await.expect_err("not of the batch");
    assert_eq!(error.sqlstate(), Some("42501"));
    drop(tx);

    let tx = lane
        .begin(&Scope::tenants(vec![TenantId(2), TenantId(1)]))
        .await
        .unwrap();
    insert(&tx, 1, 10).await.unwrap();
    insert(&tx, 2, 20).await.unwrap();
    assert_eq!(tx.query(THING_LIST, &[]).await.unwrap().len(), 2);
    tx.commit().await.unwrap();

    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    let rows = tx.query(THING_LIST, &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].get::<_, i64>(0), 1);
    assert_eq!(insert(&tx, 2, 21).await.unwrap_err().sqlstate(), Some("42501"));
}

async fn a_scope_ends_with_its_transaction(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let pool = narrow.pool(Role::App);
    let tx = pool.begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    let before: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    tx.commit().await.unwrap();

    let tx = pool.begin(&Scope::Installation).await.unwrap();
    let after: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "the same session");
    tx.query(THING_LIST, &[])
        .await
        .expect_err("the scope was another transaction's");
    drop(tx);

    let tx = pool.begin(&Scope::Tenant(TenantId(2))).await.unwrap();
    assert_eq!(tx.query(THING_LIST, &[]).await.unwrap().len(), 0);
}

async fn a_scope_set_for_the_session_is_refused(cluster: Cluster) {
    let db = cluster.database().await;
    for setting in ["counterfoil.tenant", "counterfoil.tenants"] {
        let narrow = db.narrow();
        let pool = narrow.pool(Role::App);
        let tx = pool.begin(&ONE).await.unwrap();
        let backend: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
        tx.batch(&format!("SET {setting} = '7'")).await.unwrap();
        tx.commit().await.unwrap();

        let Err(error) = pool.begin(&ONE).await else {
            panic!("begun with {setting} set")
        };
        assert!(matches!(&error, Error::ScopeSet { setting: found, value }
            if *found == setting && value == "7"));
        assert!(error.to_string().contains("SET without LOCAL"), "{error}");

        let tx = pool.begin(&ONE).await.expect("the next connection is clean");
        let other: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
        assert_ne!(backend, other, "the connection was closed");
    }
}

async fn a_scope_set_for_the_role_is_refused(cluster: Cluster) {
    let db = cluster.database().await;
    let set = "ALTER ROLE counterfoil_app IN DATABASE $ SET counterfoil.tenant = '1'";
    db.admin.batch_execute(&set.replace('$', &db.name)).await.unwrap();
    let Err(error) = db.with(|_| {}).pool(Role::App).begin(&ONE).await else {
        panic!("begun")
    };
    assert!(error.to_string().contains("ALTER ROLE"), "{error}");
}

/// A client that says SET without LOCAL, outside of a transaction, leaves it on the server
/// connection that PgBouncer hands to the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scope_that_leaked_through_pgbouncer_is_refused() {
    let db = Cluster::pg15().database().await;
    let bouncer = Cluster {
        admin: variable_of("COUNTERFOIL_TEST_PGBOUNCER").parse().unwrap(),
    };
    let mut careless = bouncer.clone();
    careless.admin.user("counterfoil_app").password(PASSWORD);
    let careless = careless.connect(&db.name).await;
    careless.batch_execute("SET counterfoil.tenant = '2'").await.unwrap();
    drop(careless);

    let through = db.with(|settings| {
        settings.port = bouncer.port();
        settings.pooler = Pooler::Transaction;
    });
    let pool = through.pool(Role::App);
    let Err(error) = pool.begin(&ONE).await else {
        panic!("begun on a session with a scope")
    };
    assert!(
        matches!(&error, Error::ScopeSet { value, .. } if value == "2"),
        "{error}"
    );
    assert!(error.to_string().contains("RECONNECT"), "{error}");

    // Since the connection was closed in the transaction, PgBouncer closed the server's as well.
    let tx = pool.begin(&ONE).await.expect("a fresh session");
    insert(&tx, 1, 1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(db.things().await, 1);
}
