//! Rotation of stub generations under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_intent::{Answer, Generations, Lanes, Options};
use counterfoil_pg::{Role, Scope};
use counterfoil_test::{Server, database};

use crate::harness::{Harness, stub};

/// Text keys, sent again and again within retention, through two servers, while generations open
/// and go: none runs twice, and none is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_runs_twice_and_none_is_lost_while_generations_rotate_under_two_servers() {
    let harness = Harness::with_retention(Server::Pg18, Duration::from_millis(1_500)).await;
    let tenant = harness.tenant().await;
    let servers = [harness.lanes().await, harness.lanes().await];
    let stop = Arc::new(AtomicBool::new(false));
    let rotation = tokio::spawn({
        let (database, generations, stop) = (harness.test.database(), servers[0].generations(), stop.clone());
        async move {
            let (mut opened, mut dropped) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let done = generations.rotate(&database).await.unwrap();
                opened += usize::from(done.opened.is_some());
                dropped += done.dropped.len();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            (opened, dropped)
        }
    });
    let until = std::time::Instant::now() + Duration::from_secs(8);
    let mut n = 0;
    while std::time::Instant::now() < until {
        n += 1;
        let (counter, the_key) = (format!("n{n}"), format!("key-{n}"));
        // At once through both, then once more: within a retention, so one effect.
        let again = |lanes: &Lanes| {
            let (lanes, intent) = (lanes.clone(), harness.count(tenant, &the_key, &counter, 1));
            async move { lanes.submit(vec![intent]).await.remove(0) }
        };
        let (a, b) = tokio::join!(again(&servers[0]), again(&servers[1]));
        let c = again(&servers[n % 2]).await;
        for answer in [&a, &b, &c] {
            assert_eq!(&*stub(answer).0.result, r#"{"count":"1"}"#);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let (opened, dropped) = rotation.await.unwrap();
    assert!(opened >= 3 && dropped >= 2, "opened {opened}, dropped {dropped}");
    assert!(n > 100, "{n}");
    assert_eq!(harness.sum(tenant).await, i64::try_from(n).unwrap());
}

#[tokio::test]
async fn the_first_rotation_makes_the_generations_around_now_and_the_second_changes_nothing() {
    let test = database(Server::Pg15).await;
    let db = test.database();
    let generations = Generations::load(&db).await.unwrap();
    let first = generations.rotate(&db).await.unwrap();
    assert_eq!(first.added.len(), 3);
    assert_eq!(first.opened, Some(first.added[1]));
    assert_eq!(
        generations.rotate(&db).await.unwrap(),
        counterfoil_intent::Rotation::default()
    );
    assert!(
        !Generations::set_retention(&db, Duration::from_secs(1)).await.unwrap(),
        "too late to change it"
    );
}

#[tokio::test]
async fn rotation_is_postponed_not_queued_while_a_batch_holds_the_lock() {
    let harness = Harness::new(Server::Pg18).await;
    let db = harness.test.database();
    let holder = db.pool(Role::Lane).begin(&Scope::Installation).await.unwrap();
    holder
        .lock_shared(counterfoil_pg::AdvisoryLock::StubGenerations)
        .await
        .unwrap();
    // As if the clock had gone past the end of the open generation.
    harness
        .admin
        .batch_execute("UPDATE counterfoil.stub_generation SET opened_at = NULL")
        .await
        .unwrap();
    let generations = Generations::load(&db).await.unwrap();
    assert!(generations.rotate(&db).await.unwrap().postponed);
    holder.rollback().await;
    let done = generations.rotate(&db).await.unwrap();
    assert!(done.opened.is_some() && !done.postponed);
}

/// A UUIDv7 of this time.
fn v7(millis: i64, n: i64) -> String {
    format!("{:08x}-{:04x}-7000-8000-{n:012x}", millis >> 16, millis & 0xffff)
}

const RETENTION_MS: i64 = 30 * 86_400_000;

/// The database's clock in milliseconds.
async fn clock(harness: &Harness) -> i64 {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    harness.admin.query_one(sql, &[]).await.unwrap().get(0)
}

/// As if a generation had never been made, or had been dropped by somebody's hand.
async fn take_away(harness: &Harness, generation: i64) {
    let sql = format!(
        "DELETE FROM counterfoil.stub_generation WHERE gen = {generation};
         DROP TABLE counterfoil.stub_{generation}"
    );
    harness.admin.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn a_generation_that_was_dropped_is_remembered() {
    let harness = Harness::with_retention(Server::Pg18, Duration::from_secs(1)).await;
    let db = harness.test.database();
    let generations = Generations::load(&db).await.unwrap();
    let dropped = loop {
        let done = generations.rotate(&db).await.unwrap();
        if let Some(last) = done.dropped.last() {
            break *last;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    let sql = "SELECT dropped FROM counterfoil.stub_retention";
    assert_eq!(
        harness.admin.query_one(sql, &[]).await.unwrap().get::<_, i32>(0),
        dropped
    );
}

/// The database's clock steps back into a generation that has been dropped: to rotation it looks as
/// if that one had never been made.
#[tokio::test]
async fn a_dropped_generation_never_comes_back_and_its_keys_are_too_old() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    let current = clock(&harness).await / RETENTION_MS;
    let the_key = v7(current * RETENTION_MS - 1, 1);
    let submit = async || {
        let intent = harness.count(tenant, &the_key, "c", 1);
        lanes.submit(vec![intent]).await.remove(0)
    };
    assert!(stub(&submit().await).0.accepted);
    take_away(&harness, current - 1).await;
    let sql = format!("UPDATE counterfoil.stub_retention SET dropped = {}", current - 1);
    harness.admin.batch_execute(&sql).await.unwrap();

    let db = harness.test.database();
    assert_eq!(
        lanes.generations().rotate(&db).await.unwrap(),
        counterfoil_intent::Rotation::default()
    );
    let answer = submit().await;
    assert!(matches!(answer, Answer::KeyTooOld { .. }), "{answer:?}");
    assert_eq!(harness.sum(tenant).await, 1, "it ran once");
}

#[tokio::test]
async fn rotation_that_cannot_have_its_lock_is_postponed_and_comes_to_it_the_next_time() {
    let harness = Harness::new(Server::Pg18).await;
    let db = harness.test.database();
    let generations = Generations::load(&db).await.unwrap();
    let next = clock(&harness).await / RETENTION_MS + 1;
    take_away(&harness, next).await;
    harness
        .admin
        .batch_execute("BEGIN; LOCK TABLE counterfoil.stub IN SHARE UPDATE EXCLUSIVE MODE")
        .await
        .unwrap();
    let done = generations.rotate(&db).await.unwrap();
    assert!(done.postponed && done.added.is_empty(), "{done:?}");
    harness.admin.batch_execute("COMMIT").await.unwrap();
    let done = generations.rotate(&db).await.unwrap();
    assert_eq!(done.added, [i32::try_from(next).unwrap()]);
    assert!(!done.postponed);
}

/// A batch makes the partition that it needs, and leaves the rest of rotation to rotation.
#[tokio::test]
async fn a_batch_without_its_partition_makes_it_and_opens_and_drops_nothing() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    let now = clock(&harness).await;
    let current = now / RETENTION_MS;
    take_away(&harness, current).await;
    // The one before is still open, for so long that one from long ago is due to be dropped.
    let sql = format!(
        "UPDATE counterfoil.stub_generation SET opened_at = now() - interval '100 days' WHERE gen = {};
         INSERT INTO counterfoil.stub_generation (gen, opened_at) VALUES ({}, now() - interval '200 days')",
        current - 1,
        current - 5
    );
    harness.admin.batch_execute(&sql).await.unwrap();
    let answers = lanes.submit(vec![harness.count(tenant, &v7(now, 1), "c", 1)]).await;
    assert!(stub(&answers[0]).0.accepted);
    let sql = "SELECT gen::bigint, opened_at IS NOT NULL FROM counterfoil.stub_generation ORDER BY gen";
    let rows = harness.admin.query(sql, &[]).await.unwrap();
    let there: Vec<(i64, bool)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(
        there,
        [
            (current - 5, true),
            (current - 1, true),
            (current, false),
            (current + 1, false)
        ]
    );
}

#[tokio::test]
async fn keys_of_sixty_generations_are_not_looked_up_by_a_statement_each() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let lanes = harness
        .lanes_on(harness.test.database_through(&proxy), Options::default())
        .await;
    let now = clock(&harness).await;
    let mut intents = vec![
        harness.count(tenant, &v7(now, 0), "c", 1),
        harness.count(tenant, "text", "c", 1),
    ];
    intents.extend((2..60).map(|n| harness.count(tenant, &v7(now - n * RETENTION_MS, n), "c", 1)));
    let before = proxy.seen().executes;
    let answers = lanes.submit(intents).await;
    let sent = proxy.seen().executes - before;
    assert!(sent < 30, "{sent} statements");
    for (n, answer) in answers.iter().enumerate() {
        if n < 2 {
            assert!(stub(answer).0.accepted);
        } else {
            assert!(matches!(answer, Answer::KeyTooOld { .. }), "{answer:?}");
        }
    }
}
