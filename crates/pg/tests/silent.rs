//! A server, or a network, that goes silent: nothing waits for it for ever.

use std::time::{Duration, Instant};

use counterfoil_pg::{Class, Error, Role};
use futures_util::future::{join_all, try_join3};

use crate::cluster::{Cluster, ONE, SLEEP, insert};
use crate::on_both;
use crate::proxy::Proxy;

on_both!(
    a_transaction_whose_replies_are_swallowed_ends_and_takes_the_idle_connections_along,
    statements_that_wait_for_each_other_do_not_count_as_silence,
);

/// A firewall that has forgotten every connection there was: each of those that lie idle in the pool
/// would cost whoever takes it the same wait.
async fn a_transaction_whose_replies_are_swallowed_ends_and_takes_the_idle_connections_along(cluster: Cluster) {
    const PATIENCE: Duration = Duration::from_secs(1);
    let db = cluster.database().await;
    let proxy = Proxy::before(cluster.port()).await;
    let through = db.with(|settings| {
        settings.port = proxy.port;
        settings.pool_size.insert(Role::App, 4);
        settings.reply_timeout.insert(Role::App, PATIENCE);
    });
    let pool = through.pool(Role::App);
    for tx in join_all((0..4).map(|_| pool.begin(&ONE))).await {
        tx.unwrap().rollback().await;
    }
    let tx = pool.begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    proxy.mute_old();

    let since = Instant::now();
    let error = insert(&tx, 1, 2).await.expect_err("no reply");
    assert!(matches!(error, Error::NoReply { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Reconnect);
    tx.rollback().await;
    // A ROLLBACK that is waited for would take two seconds more.
    assert!(since.elapsed() < 2 * PATIENCE, "{:?}", since.elapsed());

    proxy.forget();
    let tx = pool.begin(&ONE).await.unwrap();
    let begins = proxy
        .sent()
        .iter()
        .filter(|(_, body)| body.starts_with(b"BEGIN"))
        .count();
    assert_eq!(begins, 1, "not tried on a connection that lay beside it");
    insert(&tx, 1, 3).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(db.things().await, 1);
}

/// Pipelined, the last waits for those before it, longer than any of them may take.
async fn statements_that_wait_for_each_other_do_not_count_as_silence(cluster: Cluster) {
    let db = cluster.database().await;
    let patient = db.with(|settings| {
        settings.reply_timeout.insert(Role::App, Duration::from_millis(1_500));
    });
    let tx = patient.pool(Role::App).begin(&ONE).await.unwrap();
    let sleep = || tx.query(SLEEP, &[&0.8f64]);
    try_join3(sleep(), sleep(), sleep()).await.expect("each is in time");
    tx.rollback().await;
}
