//! A transaction that must not commit does not, and says so.

use std::time::Duration;

use counterfoil_pg::{Class, CommitError, Error, Role, Scope, Sql, Verdict};
use futures_util::future::join;
use tokio::time::timeout;

use crate::cluster::{BACKEND, Cluster, ONE, SLEEP, THING_LIST, insert};
use crate::on_both;
use crate::proxy::{Fault, Proxy};

on_both!(
    a_swallowed_failure_cannot_commit,
    of_pipelined_failures_the_first_is_named,
    an_abandoned_statement_cannot_commit,
    a_deferred_constraint_fails_at_commit_and_nothing_is_left,
    a_connection_lost_before_commit_is_a_rollback,
    a_fatal_error_in_place_of_the_reply_is_unknown,
    a_reply_that_never_comes_is_unknown,
    a_statement_whose_reply_never_comes_gives_up_its_connection,
    a_refused_commit_leaves_the_connection_usable,
);

async fn a_swallowed_failure_cannot_commit(cluster: Cluster) {
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    let _ = insert(&tx, 1, 1).await.expect_err("twice the same key");
    // The server answers the COMMIT of such a transaction with "ROLLBACK", and calls it a success.
    let CommitError { verdict, source } = tx.commit().await.expect_err("committed nothing");
    assert_eq!(verdict, Verdict::RolledBack);
    assert_eq!(source.sqlstate(), Some("23505"));
    assert_eq!(source.class(), Class::Unique, "the class of what was passed over");
    assert!(source.to_string().contains("thing_insert"), "{source}");
    assert_eq!(db.things().await, 0);
}

async fn of_pipelined_failures_the_first_is_named(cluster: Cluster) {
    static BROKEN: &Sql = &Sql {
        name: "broken",
        text: "SELECT 1 / (pg_advisory_xact_lock(7) IS NULL)::int",
        params: &[],
    };
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    // The second fails only because the first did (25P02), and is heard of first. The first waits for
    // a lock until then, or its failure might be there as soon as it is sent.
    {
        db.admin.batch_execute("SELECT pg_advisory_lock(7)").await.unwrap();
        let mut first = Box::pin(tx.query(BROKEN, &[]));
        assert!(futures_util::poll!(first.as_mut()).is_pending());
        db.admin.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
        let echo = tx.query(THING_LIST, &[]).await.expect_err("in a failed transaction");
        assert_eq!(echo.sqlstate(), Some("25P02"));
        first.await.expect_err("division by zero");
    }
    let error = tx.commit().await.expect_err("failed");
    assert_eq!(error.source.sqlstate(), Some("22012"));
    assert!(error.source.to_string().contains("broken"), "{}", error.source);
}

async fn an_abandoned_statement_cannot_commit(cluster: Cluster) {
    static LATE: &Sql = &Sql {
        name: "late",
        text: "SELECT 1 / (CASE WHEN pg_sleep(0.2) IS NULL THEN 1 ELSE 0 END)",
        params: &[],
    };
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    timeout(Duration::from_millis(50), tx.query(LATE, &[]))
        .await
        .expect_err("still running");
    // It fails while nobody listens. COMMIT would "succeed".
    let error = tx.commit().await.expect_err("nobody knows whether `late` failed");
    assert_eq!(error.verdict, Verdict::RolledBack);
    assert!(matches!(error.source, Error::Abandoned { statement: "late" }));
    assert_eq!(db.things().await, 0);
}

async fn a_deferred_constraint_fails_at_commit_and_nothing_is_left(cluster: Cluster) {
    let db = cluster.database().await;
    db.admin
        .batch_execute(
            "ALTER TABLE counterfoil.thing
               ADD CONSTRAINT note_once UNIQUE (note) DEFERRABLE INITIALLY DEFERRED",
        )
        .await
        .unwrap();
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    insert(&tx, 1, 2).await.unwrap();
    let error = tx.commit().await.expect_err("two equal notes");
    assert_eq!(error.verdict, Verdict::RolledBack);
    assert_eq!(error.source.sqlstate(), Some("23505"));
    assert_eq!(error.source.constraint(), Some("note_once"));
    assert_eq!(error.source.table(), Some("thing"));
    assert_eq!(db.things().await, 0);
}

async fn a_refused_commit_leaves_the_connection_usable(cluster: Cluster) {
    let db = cluster.database().await;
    let narrow = db.narrow();
    let pool = narrow.pool(Role::App);
    let mut backends = Vec::new();
    for _ in 0..3 {
        let tx = pool.begin(&ONE).await.unwrap();
        backends.push(tx.query_one(BACKEND, &[]).await.unwrap().get::<_, i32>(0));
        let _ = insert(&tx, 2, 1).await;
        tx.commit().await.expect_err("a wall was hit");
        assert_eq!(db.sessions("idle in transaction%").await, 0);
    }
    backends.dedup();
    assert_eq!(backends.len(), 1, "the connection was given back, not closed");
}

async fn a_connection_lost_before_commit_is_a_rollback(cluster: Cluster) {
    let db = cluster.database().await;
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    let backend: i32 = tx.query_one(BACKEND, &[]).await.unwrap().get(0);
    db.admin
        .execute("SELECT pg_terminate_backend($1)", &[&backend])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let error = tx.commit().await.expect_err("the session is gone");
    assert_eq!(error.verdict, Verdict::RolledBack);
    assert_eq!(error.source.class(), Class::Reconnect);
    assert_eq!(db.things().await, 0);
}

/// A backend told to stop while its COMMIT waits for a standby has committed, and says FATAL all
/// the same. Here it is told by a trigger, before it has committed: from outside no difference.
async fn a_fatal_error_in_place_of_the_reply_is_unknown(cluster: Cluster) {
    let db = cluster.database().await;
    db.admin
        .batch_execute(
            "CREATE FUNCTION counterfoil.leave() RETURNS trigger LANGUAGE plpgsql AS $$
             BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
             CREATE CONSTRAINT TRIGGER leave AFTER INSERT ON counterfoil.thing
                DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION counterfoil.leave()",
        )
        .await
        .unwrap();
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    let error = tx.commit().await.expect_err("terminated");
    assert_eq!(error.verdict, Verdict::Unknown);
    assert_eq!(error.source.sqlstate(), Some("57P01"));
    assert_eq!(
        error.source.class(),
        Class::Other,
        "not to be run again before it is resolved"
    );
}

/// A server that is frozen keeps no statement_timeout.
async fn a_statement_whose_reply_never_comes_gives_up_its_connection(cluster: Cluster) {
    let db = cluster.database().await;
    let impatient = db.with(|settings| {
        settings.reply_timeout.insert(Role::App, Duration::from_millis(200));
    });
    let tx = impatient.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    let error = tx.query(SLEEP, &[&60f64]).await.expect_err("no reply for a minute");
    assert!(matches!(error, Error::NoReply { .. }), "{error:?}");
    assert_eq!(error.class(), Class::Reconnect, "to be run again on another connection");
    let error = tx.commit().await.expect_err("nobody knows what the statement came to");
    assert_eq!(error.verdict, Verdict::RolledBack);
    assert_eq!(db.things().await, 0);
    let tx = impatient.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(db.things().await, 1);
}

async fn a_reply_that_never_comes_is_unknown(cluster: Cluster) {
    let db = cluster.database().await;
    let proxy = Proxy::before(cluster.port()).await;
    let impatient = db.with(|settings| {
        settings.port = proxy.port;
        settings.commit_timeout = Duration::from_millis(200);
    });
    let tx = impatient.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    proxy.arm(Fault::Swallow);
    let error = tx.commit().await.expect_err("no reply");
    assert_eq!(error.verdict, Verdict::Unknown);
    assert!(matches!(error.source, Error::CommitLost { source: None }));
    // The connection is discarded, and the server notices.
    db.wait_for_no_session("idle in transaction%").await;
    let (a, b) = (impatient.pool(Role::App).begin(&ONE), db.database.pool(Role::Lane));
    let (a, b) = join(a, b.begin(&Scope::tenants(Vec::new()))).await;
    a.unwrap().rollback().await;
    b.unwrap().query(SLEEP, &[&0f64]).await.unwrap();
}
