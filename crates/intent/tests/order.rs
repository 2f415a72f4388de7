//! The order of an array when one of its intents ends without an outcome, and the end of the lanes.

use std::time::Duration;

use counterfoil_intent::{Answer, Intent, Options};
use counterfoil_pg::TenantId;
use counterfoil_test::Server;

use crate::harness::{Harness, accepted, fresh, until};

/// Two intents in a batch, so that an array is in several.
fn small_batches() -> Options {
    Options {
        lanes: 1,
        batch: 2,
        lock_timeout: Duration::from_millis(200),
        ..Options::default()
    }
}

/// The first two of them count `counter`, the others something else.
fn array(harness: &Harness, tenant: TenantId, counter: &str) -> Vec<Intent> {
    let intent = |i: usize| harness.count(tenant, &format!("k{i}"), if i < 2 { counter } else { "other" }, 1);
    (0..8).map(intent).collect()
}

#[tokio::test]
async fn after_a_busy_intent_nothing_behind_it_in_its_array_lands() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let lanes = harness.lanes_on(harness.test.database(), small_batches()).await;
    for counter in ["held", "other"] {
        accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), counter, 1)]).await[0]);
    }
    harness
        .admin
        .batch_execute("BEGIN; SELECT FROM counterfoil.example_counter WHERE name = 'held' FOR UPDATE")
        .await
        .unwrap();
    let answers = lanes.submit(array(&harness, tenant, "held")).await;
    for answer in &answers {
        assert!(matches!(answer, Answer::Busy), "{answers:?}");
    }
    assert_eq!(harness.counter(tenant, "other").await, Some(1));
    // Another array does not depend on it.
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "other", 1)]).await[0]);
    harness.admin.batch_execute("COMMIT").await.unwrap();
    for answer in lanes.submit(array(&harness, tenant, "held")).await {
        assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    }
}

/// The batches behind are loaded or landing already when the first one is given up.
#[tokio::test]
async fn after_a_batch_that_is_given_up_nothing_behind_it_in_its_array_lands() {
    let harness = Harness::new(Server::Pg15).await;
    let (tenant, neighbour) = (harness.tenant().await, harness.test.tenant("two").await);
    let trap = "CREATE FUNCTION counterfoil.trap() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF NEW.name = 'bad' THEN RAISE EXCEPTION 'as if' USING ERRCODE = '53100'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON counterfoil.example_counter
            FOR EACH ROW EXECUTE FUNCTION counterfoil.trap();";
    harness.admin.batch_execute(trap).await.unwrap();
    let lanes = harness.lanes_on(harness.test.database(), small_batches()).await;
    let mut intents = array(&harness, tenant, "bad");
    // Of another tenant, in the same call: not behind it.
    intents.push(harness.count(neighbour, &fresh(), "c", 1));
    let answers = lanes.submit(intents).await;
    for answer in &answers[..8] {
        assert!(matches!(answer, Answer::Unavailable { .. }), "{answers:?}");
    }
    assert_eq!(harness.stubs(tenant).await, 0);
    harness
        .admin
        .batch_execute("DROP TRIGGER trap ON counterfoil.example_counter")
        .await
        .unwrap();
    for answer in lanes.submit(array(&harness, tenant, "bad")).await {
        assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    }
}

#[tokio::test]
async fn lanes_that_are_shut_down_leave_no_task_behind() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let lanes = harness.lanes().await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    assert!(tasks() > before);
    assert!(lanes.shutdown().await);
    let answers = lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await;
    assert!(matches!(answers[0], Answer::ShuttingDown), "{answers:?}");
    // With the last door to them their connections end, too.
    drop(lanes);
    until("nothing is left of the lanes", async || tasks() <= before).await;
}
