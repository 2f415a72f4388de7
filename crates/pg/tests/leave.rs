//! A transaction that is dropped leaves nothing behind.

use std::time::{Duration, Instant};

use counterfoil_pg::Role;
use tokio::time::timeout;

use crate::cluster::{BACKEND, Cluster, ONE, SLEEP, THING_TOUCH, insert};
use crate::on_both;
use crate::proxy::{Fault, Proxy};

on_both!(
    dropped_without_commit_it_is_rolled_back,
    dropped_in_mid_query_it_leaves_no_open_transaction,
    a_long_statement_is_cancelled,
    one_that_waits_for_a_lock_is_cancelled,
    a_rollback_that_nobody_waits_for_is_finished,
    dropped_outside_of_a_runtime_it_closes_its_connection,
    a_begin_that_nobody_waits_for_leaves_nothing,
    a_commit_that_nobody_waits_for_leaves_nothing,
    a_commit_that_hangs_is_not_handed_to_the_next,
);

async fn dropped_without_commit_it_is_rolled_back(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    let before: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    drop(tx);
    // The only connection: it is nobody's until it has been rolled back.
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    let after: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "given back, not closed");
    insert(&tx, 1, 1).await.expect("the first was undone");
}

async fn dropped_in_mid_query_it_leaves_no_open_transaction(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    let before: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    insert(&tx, 1, 1).await.unwrap();
    timeout(Duration::from_millis(50), tx.query(SLEEP, &[&0.5f64]))
        .await
        .expect_err("asleep");
    drop(tx);
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    let after: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    assert_eq!(before, after, "the reply was drained, and the connection given back");
    tx.rollback().await;
    assert_eq!(db.things().await, 0);
    assert_eq!(db.sessions("idle in transaction%").await, 0);
}

async fn a_long_statement_is_cancelled(cluster: Cluster) {
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    timeout(Duration::from_millis(50), tx.query(SLEEP, &[&60f64]))
        .await
        .expect_err("asleep");
    let since = Instant::now();
    tx.rollback().await;
    db.wait_for_no_session("active").await;
    assert!(since.elapsed() < Duration::from_secs(10), "{:?}", since.elapsed());
    assert_eq!(db.sessions("idle in transaction%").await, 0);
}

async fn one_that_waits_for_a_lock_is_cancelled(cluster: Cluster) {
    let db = cluster.database().await;
    let pool = db.database.pool(Role::App);
    let tx = pool.begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    tx.commit().await.unwrap();
    let holder = pool.begin(&ONE).await.unwrap();
    holder.execute(THING_TOUCH, &[&1i64, &1i64]).await.unwrap();
    let waiter = pool.begin(&ONE).await.unwrap();
    let touch = waiter.execute(THING_TOUCH, &[&1i64, &1i64]);
    timeout(Duration::from_millis(50), touch)
        .await
        .expect_err("the row is locked");
    drop(waiter);
    db.wait_for_no_session("active").await;
    holder.commit().await.unwrap();
    let note: String = db
        .admin
        .query_one("SELECT note FROM counterfoil.thing", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(note, "x", "only the holder's");
}

async fn a_rollback_that_nobody_waits_for_is_finished(cluster: Cluster) {
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    timeout(Duration::from_millis(20), tx.query(SLEEP, &[&0.3f64]))
        .await
        .expect_err("asleep");
    timeout(Duration::from_millis(20), tx.rollback())
        .await
        .expect_err("behind the sleep");
    db.wait_for_no_session("active").await;
    db.wait_for_no_session("idle in transaction%").await;
}

async fn dropped_outside_of_a_runtime_it_closes_its_connection(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    std::thread::spawn(move || drop(tx)).join().unwrap();
    db.wait_for_no_session("idle in transaction%").await;
    assert_eq!(db.things().await, 0);
    narrow
        .pool(Role::App)
        .begin(&ONE)
        .await
        .expect("its place in the pool is free")
        .rollback()
        .await;
}

async fn a_begin_that_nobody_waits_for_leaves_nothing(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    for micros in (0..4_000).step_by(200) {
        let begin = narrow.pool(Role::App).begin(&ONE);
        let _ = timeout(Duration::from_micros(micros), begin).await;
    }
    db.wait_for_no_session("idle in transaction%").await;
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_commit_that_nobody_waits_for_leaves_nothing(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    for (id, micros) in (0..2_000).step_by(100).enumerate() {
        let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
        insert(&tx, 1, id as i64).await.unwrap();
        let _ = timeout(Duration::from_micros(micros), tx.commit()).await;
    }
    db.wait_for_no_session("idle in transaction%").await;
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1_000).await.unwrap();
    tx.commit().await.unwrap();
}

/// Whoever asked for it has gone before the reply came, which never will. The connection must not
/// be given to the next one, who would wait for it, nor may COMMIT be cancelled.
async fn a_commit_that_hangs_is_not_handed_to_the_next(cluster: Cluster) {
    let db = cluster.database().await;
    let proxy = Proxy::before(cluster.port()).await;
    let narrow = db.with(|settings| {
        settings.port = proxy.port;
        settings.pool_size = [(Role::App, 1)].into();
    });
    let tx = narrow.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    proxy.arm(Fault::Swallow);
    timeout(Duration::from_millis(50), tx.commit())
        .await
        .expect_err("no reply");
    let begin = timeout(Duration::from_secs(1), narrow.pool(Role::App).begin(&ONE)).await;
    begin.expect("another connection").unwrap().rollback().await;
}
