//! `Pool::run`: which failures are run again, and how often.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use counterfoil_pg::{Backoff, Class, Error, Role, Sql, Type, attempt};
use futures_util::future::join;

use crate::cluster::{BACKEND, Cluster, ONE, THING_TOUCH, TestDb, insert};
use crate::on_both;

on_both!(
    a_deadlock_is_run_again,
    a_lock_timeout_is_run_again_until_attempts_are_used_up,
    bad_data_is_not_run_again,
    a_swallowed_deadlock_is_run_again,
    a_connection_lost_in_the_middle_is_run_again,
    another_tables_missing_partition_is_the_callers,
    a_run_can_be_spawned,
);

async fn two_things(db: &TestDb) {
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    insert(&tx, 1, 1).await.unwrap();
    insert(&tx, 1, 2).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_deadlock_is_run_again(cluster: Cluster) {
    let db = cluster.database().await;
    two_things(&db).await;
    let pool = db.database.pool(Role::App);
    let touch = |first: i64, second: i64| {
        pool.run(&ONE, move |tx| {
            attempt(async move {
                tx.execute(THING_TOUCH, &[&1i64, &first]).await?;
                tokio::time::sleep(Duration::from_millis(100)).await;
                tx.execute(THING_TOUCH, &[&1i64, &second]).await
            })
        })
    };
    let (one, other) = join(touch(1, 2), touch(2, 1)).await;
    assert_eq!((one.unwrap(), other.unwrap()), (1, 1));
    let notes: i64 = db
        .admin
        .query_one("SELECT count(*) FROM counterfoil.thing WHERE note = 'xx'", &[])
        .await
        .unwrap()
        .get(0);
    assert_eq!(notes, 2, "each touched each once");
}

async fn a_lock_timeout_is_run_again_until_attempts_are_used_up(cluster: Cluster) {
    let db = cluster.database().await;
    two_things(&db).await;
    let pool = db.database.pool(Role::App);
    let holder = pool.begin(&ONE).await.unwrap();
    holder.execute(THING_TOUCH, &[&1i64, &1i64]).await.unwrap();
    let attempts = AtomicU32::new(0);
    let error = pool
        .run(&ONE, |tx| {
            attempts.fetch_add(1, Ordering::SeqCst);
            attempt(async move {
                tx.set_lock_timeout(Duration::from_millis(5)).await?;
                tx.execute(THING_TOUCH, &[&1i64, &1i64]).await
            })
        })
        .await
        .expect_err("the row stays locked");
    assert_eq!(error.sqlstate(), Some("55P03"));
    assert_eq!(error.class(), Class::Retry);
    assert_eq!(attempts.load(Ordering::SeqCst), Backoff::ATTEMPTS);
}

async fn bad_data_is_not_run_again(cluster: Cluster) {
    let db = cluster.database().await;
    two_things(&db).await;
    let attempts = AtomicU32::new(0);
    let error = db
        .database
        .pool(Role::App)
        .run(&ONE, |tx| {
            attempts.fetch_add(1, Ordering::SeqCst);
            attempt(async move { insert(tx, 1, 1).await })
        })
        .await
        .expect_err("twice the same key");
    assert_eq!(error.class(), Class::Unique);
    assert_eq!(error.constraint(), Some("thing_pkey"));
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
}

/// The caller swallows a 40P01. It must neither commit nor be taken for done.
async fn a_swallowed_deadlock_is_run_again(cluster: Cluster) {
    static DEADLOCK: &Sql = &Sql {
        name: "deadlock",
        text: "DO $$ BEGIN RAISE EXCEPTION 'as if' USING ERRCODE = '40P01'; END $$",
        params: &[],
    };
    let db = cluster.database().await;
    db.database.maintain_outcomes().await.unwrap();
    let attempts = AtomicU32::new(0);
    db.database
        .pool(Role::App)
        .run(&ONE, |tx| {
            let first = attempts.fetch_add(1, Ordering::SeqCst) == 0;
            attempt(async move {
                insert(tx, 1, 1).await?;
                if first {
                    let _ = tx.execute(DEADLOCK, &[]).await;
                }
                Ok(())
            })
        })
        .await
        .unwrap();
    assert_eq!((attempts.load(Ordering::SeqCst), db.things().await), (2, 1));
}

async fn a_connection_lost_in_the_middle_is_run_again(cluster: Cluster) {
    let db = cluster.database().await;
    db.database.maintain_outcomes().await.unwrap();
    let attempts = AtomicU32::new(0);
    let (attempts, admin) = (&attempts, &db.admin);
    db.database
        .pool(Role::App)
        .run(&ONE, |tx| {
            attempt(async move {
                insert(tx, 1, 1).await?;
                if attempts.fetch_add(1, Ordering::SeqCst) < 2 {
                    let backend: i32 = tx.query_one(BACKEND, &[]).await?.try_get(0)?;
                    let end = "SELECT pg_terminate_backend($1)";
                    admin.execute(end, &[&backend]).await?;
                }
                insert(tx, 1, 2).await
            })
        })
        .await
        .unwrap();
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!(db.things().await, 2);
}

async fn another_tables_missing_partition_is_the_callers(cluster: Cluster) {
    static INSERT: &Sql = &Sql {
        name: "sparse_insert",
        text: "INSERT INTO counterfoil.sparse VALUES ($1)",
        params: &[Type::INT8],
    };
    let db = cluster.database().await;
    // The message is translated where the server speaks another language; the routine is not.
    db.admin
        .batch_execute(
            "CREATE TABLE counterfoil.sparse (id bigint CHECK (id < 100)) PARTITION BY RANGE (id);
             CREATE TABLE counterfoil.sparse_1 PARTITION OF counterfoil.sparse
                FOR VALUES FROM (0) TO (1000);
             GRANT INSERT ON counterfoil.sparse TO counterfoil_app",
        )
        .await
        .unwrap();
    for (id, class) in [(5_000i64, Class::MissingPartition), (500, Class::Data)] {
        let error = db
            .database
            .pool(Role::App)
            .run(&ONE, move |tx| attempt(async move { tx.execute(INSERT, &[&id]).await }))
            .await
            .expect_err("does not fit");
        assert_eq!(error.sqlstate(), Some("23514"));
        assert_eq!(error.class(), class, "{id}");
    }
}

/// Every request is answered in a task of its own, and what it works on is borrowed.
async fn a_run_can_be_spawned(cluster: Cluster) {
    async fn named(db: &counterfoil_pg::Database, name: &str) -> Result<usize, Error> {
        let owned = format!("{name}!");
        db.pool(Role::App)
            .run(&ONE, |tx| {
                attempt(async {
                    insert(tx, 1, owned.len() as i64).await?;
                    Ok(name.len())
                })
            })
            .await
    }
    let db = cluster.database().await;
    let database = db.database.clone();
    let task = tokio::spawn(async move { named(&database, "shop").await });
    assert_eq!(task.await.unwrap().unwrap(), 4);
}
