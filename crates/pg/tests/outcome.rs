//! The outcome table keeps itself: partitions come and go.

use counterfoil_pg::{AdvisoryLock, Class, Maintained, Role, Scope, attempt};
use futures_util::future::join_all;

use crate::cluster::{Cluster, ONE, TestDb, insert};
use crate::on_both;

on_both!(
    partitions_are_made_ahead_and_only_once,
    partitions_that_are_past_are_dropped,
    what_is_made_stands_when_nothing_can_be_dropped,
    one_process_maintains_at_a_time,
    the_first_runs_of_a_database_make_their_partition,
    only_who_writes_outcomes_may,
);

/// A partition of some days ago, made as maintenance would have made it then.
async fn old_partition(db: &TestDb, days_ago: i32) -> String {
    let sql = "SELECT to_char(now() AT TIME ZONE 'UTC' - make_interval(days => $1), 'YYYYMMDD'),
                      floor(extract(epoch FROM now()) / 86400)::bigint - $1";
    let row = db.admin.query_one(sql, &[&days_ago]).await.unwrap();
    let (date, day): (String, i64) = (row.get(0), row.get(1));
    let name = format!("outcome_{date}");
    let bound = |day: i64| {
        let hex = format!("{:012x}", day * 86_400_000);
        format!("{}-{}-0000-0000-000000000000", &hex[..8], &hex[8..])
    };
    let owner = db.database.pool(Role::Owner).begin(&Scope::Installation).await.unwrap();
    owner
        .batch(&format!(
            "CREATE TABLE counterfoil.{name} PARTITION OF counterfoil.outcome
                FOR VALUES FROM ('{}') TO ('{}')",
            bound(day),
            bound(day + 1)
        ))
        .await
        .unwrap();
    owner.commit().await.unwrap();
    name
}

async fn partitions_are_made_ahead_and_only_once(cluster: Cluster) {
    let db = cluster.database().await;
    let Maintained { made, dropped } = db.database.maintain_outcomes().await.unwrap();
    assert_eq!(made.len(), 3, "today and two days ahead: {made:?}");
    assert_eq!(dropped, Vec::<String>::new());
    assert_eq!(db.database.maintain_outcomes().await.unwrap(), Maintained::default());
}

async fn partitions_that_are_past_are_dropped(cluster: Cluster) {
    let db = cluster.database().await;
    let past = old_partition(&db, 3).await;
    let kept = old_partition(&db, 2).await;
    let done = db.database.maintain_outcomes().await.unwrap();
    assert_eq!(done.dropped, std::slice::from_ref(&past));
    let sql = "SELECT count(*) FROM pg_class WHERE relname = $1 AND relkind = 'r'";
    for (name, there) in [(past, 0), (kept, 1)] {
        let count: i64 = db.admin.query_one(sql, &[&name]).await.unwrap().get(0);
        assert_eq!(count, there, "{name}");
    }
}

async fn what_is_made_stands_when_nothing_can_be_dropped(cluster: Cluster) {
    let db = cluster.database().await;
    let past = old_partition(&db, 9).await;
    // A long report reads the table.
    db.admin
        .batch_execute("BEGIN; SELECT * FROM counterfoil.outcome")
        .await
        .unwrap();
    let error = db.database.maintain_outcomes().await.expect_err("the table is in use");
    assert_eq!(error.class(), Class::Retry);
    db.admin.batch_execute("COMMIT").await.unwrap();
    let done = db.database.maintain_outcomes().await.unwrap();
    assert_eq!(
        done,
        Maintained {
            made: Vec::new(),
            dropped: vec![past]
        }
    );
}

async fn one_process_maintains_at_a_time(cluster: Cluster) {
    let db = cluster.database().await;
    let other = db.database.pool(Role::Ops).begin(&Scope::Installation).await.unwrap();
    other.lock_exclusive(AdvisoryLock::OutcomePartitions).await.unwrap();
    assert_eq!(db.database.maintain_outcomes().await.unwrap(), Maintained::default());
    other.rollback().await;
    assert_eq!(db.database.maintain_outcomes().await.unwrap().made.len(), 3);
}

async fn the_first_runs_of_a_database_make_their_partition(cluster: Cluster) {
    let db = cluster.database().await;
    let runs = (0..8i64).map(|id| {
        db.database
            .pool(Role::App)
            .run(&ONE, move |tx| attempt(async move { insert(tx, 1, id).await }))
    });
    for result in join_all(runs).await {
        assert_eq!(result.unwrap(), 1);
    }
    assert_eq!(db.things().await, 8);
    let sql = "SELECT count(*) FROM counterfoil.outcome WHERE verdict = 'committed'";
    assert_eq!(db.admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 8);
}

async fn only_who_writes_outcomes_may(cluster: Cluster) {
    let db = cluster.database().await;
    db.database.maintain_outcomes().await.unwrap();
    for role in [Role::App, Role::Lane, Role::Ops, Role::Owner, Role::Report] {
        let pool = db.database.pool(role);
        // For the report role no row is written, and none is needed.
        pool.run(&Scope::Installation, |_| attempt(async { Ok(()) }))
            .await
            .unwrap();
    }
    let sql = "SELECT count(*) FROM counterfoil.outcome";
    assert_eq!(db.admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0), 4);
    let tx = db.database.pool(Role::App).begin(&ONE).await.unwrap();
    let error = tx
        .batch("DELETE FROM counterfoil.outcome")
        .await
        .expect_err("append only");
    assert_eq!(error.sqlstate(), Some("42501"));
}
