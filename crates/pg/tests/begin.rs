//! How a transaction begins.

use std::time::Duration;

use counterfoil_pg::{Role, Scope, Sql};
use futures_util::future::join;

use crate::cluster::{BACKEND, Cluster, ONE, THING_INSERT, THING_LIST};
use crate::on_both;
use crate::proxy::Proxy;

on_both!(
    one_round_trip_begins_a_transaction,
    read_committed_is_said_explicitly,
    statements_leave_in_the_order_they_are_polled,
    a_connection_that_died_in_the_pool_is_replaced,
    the_server_is_asked_for_its_version_and_durability,
);

/// The proxy keeps every reply back until BEGIN, the look at the session and SET LOCAL have all
/// been sent. If one of them waited for another's reply, none would ever come.
async fn one_round_trip_begins_a_transaction(cluster: Cluster) {
    let db = cluster.database().await;
    let proxy = Proxy::before(cluster.port()).await;
    let narrow = db.with(|settings| {
        settings.port = proxy.port;
        settings.pool_size = [(Role::App, 1)].into();
    });
    // The look at the session is prepared once per connection: that is not what is counted here.
    narrow.pool(Role::App).begin(&ONE).await.unwrap().rollback().await;
    proxy.forget();
    proxy.mute(true);
    let begin = tokio::spawn(async move { narrow.pool(Role::App).begin(&ONE).await.unwrap() });
    let all_sent = async {
        while !proxy.sent().iter().any(|(_, body)| body.starts_with(b"SET LOCAL")) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), all_sent)
        .await
        .expect("sent without a reply");
    let kinds: Vec<u8> = proxy.sent().iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, b"QBESQ", "BEGIN; Bind, Execute, Sync; SET LOCAL");
    proxy.mute(false);
    begin.await.unwrap().rollback().await;
}

async fn read_committed_is_said_explicitly(cluster: Cluster) {
    static ISOLATION: &Sql = &Sql {
        name: "isolation",
        text: "SHOW transaction_isolation",
        params: &[],
    };
    let db = cluster.database().await;
    let default = "ALTER DATABASE $ SET default_transaction_isolation = 'serializable'";
    db.admin.batch_execute(&default.replace('$', &db.name)).await.unwrap();
    let tx = db.with(|_| {}).pool(Role::App).begin(&ONE).await.unwrap();
    let isolation: String = tx.query_one(ISOLATION, &[]).await.unwrap().get(0);
    assert_eq!(isolation, "read committed");
}

/// The first statement is new to the connection and must be prepared, the second is known. Still
/// the second sees what the first did.
async fn statements_leave_in_the_order_they_are_polled(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    tx.query(THING_LIST, &[]).await.unwrap();
    let (inserted, listed) = join(tx.execute(THING_INSERT, &[&1i64, &1i64]), tx.query(THING_LIST, &[])).await;
    assert_eq!(inserted.unwrap(), 1);
    assert_eq!(listed.unwrap().len(), 1, "the list was sent before the insert");
}

async fn a_connection_that_died_in_the_pool_is_replaced(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let pool = narrow.pool(Role::App);
    for _ in 0..5 {
        let tx = pool.begin(&ONE).await.unwrap();
        let backend: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
        tx.rollback().await;
        db.admin
            .execute("SELECT pg_terminate_backend($1)", &[&backend])
            .await
            .unwrap();
        // At once, so that sometimes the loss is only noticed when BEGIN is sent.
        pool.begin(&ONE).await.expect("another connection").rollback().await;
    }
}

async fn the_server_is_asked_for_its_version_and_durability(cluster: Cluster) {
    let db = cluster.database().await;
    let version = db.database.server_version().await.unwrap();
    assert!((150_000..200_000).contains(&version), "{version}");
    let found = db.database.durability().await.unwrap();
    assert!(!found.fsync, "the servers of the tests run without");
    assert!(found.shortfall().unwrap().starts_with("fsync is off"));
    let tx = db.database.pool(Role::Ops).begin(&Scope::Installation).await.unwrap();
    tx.rollback().await;
}
