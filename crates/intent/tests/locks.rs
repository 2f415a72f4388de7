//! Locks of others, and the order of ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use counterfoil_intent::{Answer, Kinds, Lanes, Limits, Options};
use counterfoil_pg::TenantId;
use counterfoil_test::Server;
use futures_util::future::join_all;

use crate::harness::{Harness, accepted, fresh, metric, stub};

/// Lanes in which every tenant meets every other.
fn one_lane() -> Options {
    Options {
        lanes: 1,
        ..Options::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_lock_on_one_tenant_leaves_the_others_alone_and_keeps_the_order_within() {
    let harness = Harness::new(Server::Pg18).await;
    let (held, free) = (harness.tenant().await, harness.test.tenant("two").await);
    let lanes = harness.lanes_on(harness.test.database(), one_lane()).await;
    for tenant in [held, free] {
        accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    }
    let sql = format!("BEGIN; SELECT FROM counterfoil.example_counter WHERE tenant_id = {held} FOR UPDATE");
    harness.admin.batch_execute(&sql).await.unwrap();

    // Handed over in the order of their numbers: `join_all` polls them so, and the first poll queues.
    let calls: Vec<_> = (0..20).map(|_| vec![harness.count(held, &fresh(), "c", 1)]).collect();
    let waiting = tokio::spawn({
        let lanes = lanes.clone();
        async move { join_all(calls.into_iter().map(|call| lanes.submit(call))).await }
    });
    while aside(&lanes) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        let start = Instant::now();
        accepted(&lanes.submit(vec![harness.count(free, &fresh(), "c", 1)]).await[0]);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "it waited for the foreign lock"
        );
    }
    assert!(
        !waiting.is_finished(),
        "nothing of the held tenant can land under the lock"
    );
    // One more, sent later: it lands behind those before it.
    let last = tokio::spawn({
        let (lanes, intent) = (lanes.clone(), harness.count(held, &fresh(), "c", 1));
        async move { lanes.submit(vec![intent]).await }
    });
    harness.admin.batch_execute("COMMIT").await.unwrap();

    let mut answers: Vec<_> = waiting.await.unwrap().into_iter().flatten().collect();
    answers.extend(last.await.unwrap());
    for (n, answer) in answers.iter().enumerate() {
        assert_eq!(*accepted(answer).result, format!(r#"{{"count":"{}"}}"#, n + 2));
    }
}

#[tokio::test]
async fn an_array_of_a_tenant_aside_lands_in_its_order() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    harness
        .admin
        .batch_execute("BEGIN; SELECT FROM counterfoil.example_counter FOR UPDATE")
        .await
        .unwrap();
    let array = (0..30).map(|_| harness.count(tenant, &fresh(), "c", 1)).collect();
    let submit = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.submit(array).await }
    });
    // The lane has taken it, found the row held and put the tenant aside.
    while aside(&lanes) == 0 {
        tokio::task::yield_now().await;
    }
    harness.admin.batch_execute("COMMIT").await.unwrap();
    for (n, answer) in submit.await.unwrap().iter().enumerate() {
        assert_eq!(*accepted(answer).result, format!(r#"{{"count":"{}"}}"#, n + 2));
    }
}

fn aside(lanes: &Lanes) -> u64 {
    metric(lanes, "counterfoil_lane_detours_total{")
}

#[tokio::test]
async fn a_lock_held_longer_than_the_timeout_gives_busy_and_no_stub() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let options = Options {
        lock_timeout: Duration::from_millis(200),
        ..Options::default()
    };
    let lanes = harness.lanes_on(harness.test.database(), options).await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    harness
        .admin
        .batch_execute("BEGIN; SELECT FROM counterfoil.example_counter FOR UPDATE")
        .await
        .unwrap();
    let answers = lanes.submit(vec![harness.count(tenant, "later", "c", 1)]).await;
    assert!(matches!(answers[0], Answer::Busy), "{answers:?}");
    assert_eq!(harness.stubs(tenant).await, 1);
    harness.admin.batch_execute("COMMIT").await.unwrap();
    accepted(&lanes.submit(vec![harness.count(tenant, "later", "c", 1)]).await[0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_foreign_uncommitted_insert_of_a_row_to_be_made_holds_up_its_tenant_only() {
    let harness = Harness::new(Server::Pg15).await;
    let (held, free) = (harness.tenant().await, harness.test.tenant("two").await);
    let lanes = harness.lanes_on(harness.test.database(), one_lane()).await;
    // So that the free tenant has nothing to make.
    accepted(&lanes.submit(vec![harness.count(free, &fresh(), "c", 1)]).await[0]);
    let sql =
        format!("BEGIN; INSERT INTO counterfoil.example_counter (tenant_id, name, count) VALUES ({held}, 'c', 40)");
    harness.admin.batch_execute(&sql).await.unwrap();
    let submit = tokio::spawn({
        let (lanes, intent) = (lanes.clone(), harness.count(held, &fresh(), "c", 1));
        async move { lanes.submit(vec![intent]).await.remove(0) }
    });
    while aside(&lanes) == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..10 {
        let start = Instant::now();
        accepted(&lanes.submit(vec![harness.count(free, &fresh(), "c", 1)]).await[0]);
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "it waited for the foreign insert"
        );
    }
    assert!(!submit.is_finished());
    harness.admin.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        &*accepted(&submit.await.unwrap()).result,
        r#"{"count":"41"}"#,
        "the foreign row was not overwritten"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_use_of_one_row_from_sixty_four_callers_over_two_servers_loses_nothing() {
    for server in [Server::Pg15, Server::Pg18] {
        let harness = Harness::new(server).await;
        let tenant = harness.tenant().await;
        let servers = [harness.lanes().await, harness.lanes().await];
        for round in 0..10 {
            let name = format!("row-{round}");
            let calls = (0..64).map(|i| servers[i % 2].submit(vec![harness.count(tenant, &fresh(), &name, 1)]));
            let mut counts: Vec<String> = join_all(calls)
                .await
                .iter()
                .map(|answers| accepted(&answers[0]).result.to_string())
                .collect();
            counts.sort_by_key(|count| (count.len(), count.clone()));
            counts.dedup();
            assert_eq!(counts.len(), 64, "no two callers saw the same count");
            assert_eq!(harness.counter(tenant, &name).await, Some(64));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_and_a_foreign_session_in_opposite_orders_show_no_deadlock_to_any_caller() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let servers = [harness.lanes().await, harness.lanes().await];
    for name in ["a", "b", "c"] {
        accepted(&servers[0].submit(vec![harness.count(tenant, &fresh(), name, 1)]).await[0]);
    }
    let foreign = tokio::spawn(foreign_session(harness.test.admin().await, tenant));
    let mut landed = 3;
    while !foreign.is_finished() {
        let orders = [["a", "b", "c"], ["c", "b", "a"]];
        let calls = (0..8).map(|i| {
            let names = orders[i % 2];
            servers[i % 2].submit(names.map(|name| harness.count(tenant, &fresh(), name, 1)).into())
        });
        for answers in join_all(calls).await {
            for answer in answers {
                // Full is an answer, too; a deadlock, a timeout or a 503 is not.
                landed += i64::from(stub(&answer).0.accepted);
            }
        }
        // Another foreign hand, and it may be the victim of the first: then they are emptied next time.
        let emptied = harness
            .admin
            .batch_execute("UPDATE counterfoil.example_counter SET count = 0")
            .await;
        if let Err(error) = emptied {
            assert_eq!(error.code().map(|code| code.code()), Some("40P01"), "{error:?}");
        }
    }
    foreign.await.unwrap();
    assert!(landed > 3);
}

/// Takes the same rows the other way round, again and again. It may be the victim itself.
async fn foreign_session(client: counterfoil_pg::Client, tenant: TenantId) {
    for _ in 0..150 {
        let mut sql = "BEGIN;".to_owned();
        for name in ["c", "b", "a"] {
            sql.push_str(&format!(
                "UPDATE counterfoil.example_counter SET count = count WHERE tenant_id = {tenant} AND name = '{name}';"
            ));
        }
        sql.push_str("COMMIT");
        if client.batch_execute(&sql).await.is_err() {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_giant_tenant_is_turned_away_beyond_its_bound_and_small_ones_answer_within_a_second() {
    let harness = Harness::new(Server::Pg18).await;
    let giant = harness.tenant().await;
    let lanes = harness.lanes_on(harness.test.database(), one_lane()).await;
    let stop = Arc::new(AtomicBool::new(false));
    // On a thread of their own, as callers are elsewhere: what is asked here is whether the lanes are
    // fair, not whether a runtime is to tasks that never wait.
    let giants = std::thread::spawn({
        let (lanes, stop, kinds) = (lanes.clone(), stop.clone(), harness.kinds.clone());
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(join_all((0..4).map(|g| giant_caller(g, giant, &lanes, &kinds, &stop))))
        }
    });
    let mut slowest = Duration::ZERO;
    let small = join_all((0..1_000).map(|i| {
        let (lanes, intent) = (&lanes, harness.count(TenantId(1_000_000 + i), &fresh(), "c", 1));
        async move {
            let start = Instant::now();
            let answers = lanes.submit(vec![intent]).await;
            accepted(&answers[0]);
            start.elapsed()
        }
    }));
    slowest = small.await.into_iter().fold(slowest, Duration::max);
    stop.store(true, Ordering::Relaxed);
    let turned_away: u64 = giants.join().unwrap().into_iter().sum();
    assert!(
        turned_away > 0,
        "four thousand waiting are over the bound of two thousand"
    );
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
}

/// Sends arrays of a thousand as fast as it can until told to stop; counts what is turned away.
async fn giant_caller(g: usize, tenant: TenantId, lanes: &Lanes, kinds: &Kinds, stop: &AtomicBool) -> u64 {
    let (mut n, mut turned_away) = (0_u64, 0_u64);
    while !stop.load(Ordering::Relaxed) {
        let array = (0..1_000).map(|_| {
            n += 1;
            let raw = format!(
                r#"{{"key":"g{g}-{n}","kind":"example.count","body":{{"counter":"g{}","by":1}}}}"#,
                n % 500
            );
            let raw = serde_json::value::RawValue::from_string(raw).unwrap();
            kinds.intent(Limits::default(), tenant, None, &raw).unwrap()
        });
        for answer in lanes.submit(array.collect()).await {
            turned_away += u64::from(matches!(answer, Answer::TooMany { .. }));
        }
    }
    turned_away
}

#[tokio::test]
async fn an_intent_whose_deadline_has_passed_is_not_started() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    let late = harness
        .count(tenant, "late", "c", 1)
        .with_deadline(Some(Instant::now()));
    let in_time = harness
        .count(tenant, "in-time", "c", 1)
        .with_deadline(Some(Instant::now() + Duration::from_secs(60)));
    let answers = lanes.submit(vec![late, in_time]).await;
    assert!(matches!(answers[0], Answer::DeadlinePassed), "{answers:?}");
    accepted(&answers[1]);
    assert_eq!(harness.stubs(tenant).await, 1);
}
