//! Rotation of stub generations under load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use counterfoil_intent::{Generations, Lanes};
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
