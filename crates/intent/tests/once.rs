//! Promises 1 and 2: one stub, and the same answer for the same key.

use counterfoil_intent::{Answer, StubState};
use counterfoil_test::Server;
use futures_util::future::join_all;

use crate::harness::{Harness, accepted, fresh, key, stub};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_of_one_key_over_two_servers_have_one_effect_and_equal_answers() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let servers = [harness.lanes().await, harness.lanes().await];
    let calls = (0..64).map(|i| servers[i % 2].submit(vec![harness.count(tenant, "the-key", "c", 1)]));
    let answers: Vec<Answer> = join_all(calls).await.into_iter().flatten().collect();
    let stubs: Vec<_> = answers.iter().map(stub).collect();
    assert_eq!(
        stubs.iter().filter(|(_, replayed)| !replayed).count(),
        1,
        "one of them was first"
    );
    for (stub, _) in &stubs {
        assert_eq!(
            (&stub.result, stub.recorded_at),
            (&stubs[0].0.result, stubs[0].0.recorded_at)
        );
    }
    assert_eq!(harness.counter(tenant, "c").await, Some(1));
    assert_eq!(harness.stubs(tenant).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_callers_of_one_key_with_two_bodies_have_one_effect_and_the_others_are_told_the_field() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let servers = [harness.lanes().await, harness.lanes().await];
    let calls = (0..64).map(|i| {
        let by = if i % 4 < 2 { 1 } else { 2 };
        servers[i % 2].submit(vec![harness.count(tenant, "the-key", "c", by)])
    });
    let answers: Vec<Answer> = join_all(calls).await.into_iter().flatten().collect();
    let mismatches = answers
        .iter()
        .filter(|answer| matches!(answer, Answer::Mismatch { field } if field == "body.by"));
    assert_eq!(mismatches.count(), 32);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| matches!(answer, Answer::First(_)))
            .count(),
        1
    );
    assert!(matches!(harness.counter(tenant, "c").await, Some(1 | 2)));
    assert_eq!(harness.stubs(tenant).await, 1);
}

#[tokio::test]
async fn a_key_twice_in_one_batch_and_after_a_restart_is_replayed() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let v7 = uuid::Builder::from_unix_timestamp_millis(now_ms(&harness).await, &[3; 10])
        .into_uuid()
        .to_string();
    for the_key in [fresh(), v7] {
        let lanes = harness.lanes().await;
        let both = || {
            vec![
                harness.count(tenant, &the_key, &the_key, 1),
                harness.count(tenant, &the_key, &the_key, 1),
            ]
        };
        let answers = lanes.submit(both()).await;
        assert!(
            matches!(&answers[..], [Answer::First(_), Answer::Replayed(_)]),
            "{answers:?}"
        );
        assert!(lanes.shutdown().await);
        assert!(matches!(lanes.submit(both()).await[0], Answer::ShuttingDown));
        let again = harness.lanes().await.submit(both()).await;
        assert!(
            matches!(&again[..], [Answer::Replayed(_), Answer::Replayed(_)]),
            "{again:?}"
        );
        assert_eq!(harness.counter(tenant, &the_key).await, Some(1));
    }
}

#[tokio::test]
async fn a_refusal_is_replayed_as_refused_after_the_reason_for_it_has_gone() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    let refused = lanes.submit(vec![harness.count(tenant, "too-much", "c", 101)]).await;
    let (first, _) = stub(&refused[0]);
    assert_eq!(first.refusal().unwrap().code, "counter_full");
    assert_eq!(
        harness.counter(tenant, "c").await,
        None,
        "the row that was made for it is gone"
    );
    accepted(&lanes.submit(vec![harness.count(tenant, "one", "c", 1)]).await[0]);
    let again = lanes.submit(vec![harness.count(tenant, "too-much", "c", 101)]).await;
    let (replayed, was_replayed) = stub(&again[0]);
    assert!(was_replayed && !replayed.accepted);
    assert_eq!(replayed.result, first.result);
}

#[tokio::test]
async fn an_intent_of_several_effects_is_all_or_nothing_and_in_order() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    let all = |the_key: &str, bys: [i64; 3]| {
        let parts = bys
            .map(|by| format!(r#"{{"kind":"example.count","body":{{"counter":"c","by":{by}}}}}"#))
            .join(",");
        let raw = format!(r#"{{"key":"{the_key}","all":[{parts}]}}"#);
        let raw = serde_json::value::RawValue::from_string(raw).unwrap();
        harness
            .kinds
            .intent(counterfoil_intent::Limits::default(), tenant, None, &raw)
            .unwrap()
    };
    let answers = lanes
        .submit(vec![all("a", [1, 2, 3]), all("b", [1, 1, 100]), all("c", [4, 5, 6])])
        .await;
    assert_eq!(
        &*accepted(&answers[0]).result,
        r#"{"all":[{"count":"1"},{"count":"3"},{"count":"6"}]}"#
    );
    let (refused, _) = stub(&answers[1]);
    assert_eq!(refused.refusal().unwrap().field, "all[2].body.by");
    assert_eq!(
        &*accepted(&answers[2]).result,
        r#"{"all":[{"count":"10"},{"count":"15"},{"count":"21"}]}"#
    );
    assert_eq!(harness.counter(tenant, "c").await, Some(21));
}

#[tokio::test]
async fn a_stub_is_found_or_in_flight_or_none_as_of_a_time() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    assert!(matches!(
        lanes.stub(tenant, &key("k")).await.unwrap(),
        StubState::None { .. }
    ));
    // A foreign lock keeps the intent on its way for as long as we look.
    accepted(&lanes.submit(vec![harness.count(tenant, "first", "c", 1)]).await[0]);
    harness
        .admin
        .batch_execute("BEGIN; SELECT FROM counterfoil.example_counter FOR UPDATE")
        .await
        .unwrap();
    let submit = tokio::spawn({
        let (lanes, intent) = (lanes.clone(), harness.count(tenant, "k", "c", 1));
        async move { lanes.submit(vec![intent]).await }
    });
    loop {
        match lanes.stub(tenant, &key("k")).await.unwrap() {
            StubState::InFlight => break,
            StubState::None { .. } => tokio::task::yield_now().await,
            StubState::Found(stub) => panic!("nothing can land under the lock: {stub:?}"),
        }
    }
    harness.admin.batch_execute("ROLLBACK").await.unwrap();
    accepted(&submit.await.unwrap()[0]);
    assert!(matches!(
        lanes.stub(tenant, &key("k")).await.unwrap(),
        StubState::Found(_)
    ));
}

#[tokio::test]
async fn v7_keys_older_than_retention_or_an_hour_ahead_are_refused_without_a_stub() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes().await;
    let now = now_ms(&harness).await;
    let v7 = |ms: u64| {
        uuid::Builder::from_unix_timestamp_millis(ms, &[9; 10])
            .into_uuid()
            .to_string()
    };
    let month = 30 * 86_400_000;
    let send = |the_key: String| lanes.submit(vec![harness.count(tenant, &the_key, "c", 1)]);
    assert!(matches!(
        send(v7(now - month - 60_000)).await[0],
        Answer::KeyTooOld { .. }
    ));
    assert!(matches!(send(v7(now + 3_660_000)).await[0], Answer::KeyAhead));
    assert_eq!(harness.stubs(tenant).await, 0);
    accepted(&send(v7(now - month + 60_000)).await[0]);
    accepted(&send(v7(now + 3_540_000)).await[0]);
}

async fn now_ms(harness: &Harness) -> u64 {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    harness
        .admin
        .query_one(sql, &[])
        .await
        .unwrap()
        .get::<_, i64>(0)
        .unsigned_abs()
}
