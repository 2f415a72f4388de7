//! One bad intent never spoils its batch.

use counterfoil_intent::{Answer, Options};
use counterfoil_test::Server;

use crate::harness::{Harness, accepted, fresh};

/// Two thousand intents, the bad one somewhere among them, in batches as large as they get.
async fn among_two_thousand(kind: &str) {
    let harness = Harness::new(Server::Pg18).await;
    harness
        .admin
        .batch_execute("ALTER TABLE counterfoil.example_counter ADD CONSTRAINT nobody_foresaw CHECK (count >= 0)")
        .await
        .unwrap();
    let tenant = harness.tenant().await;
    let lanes = harness.lanes_on(harness.test.database(), Options::default()).await;
    let bad = 1_234;
    let body = r#"{"counter":"bad","by":7}"#;
    let intents = || {
        (0..2_000)
            .map(|i| {
                if i == bad {
                    harness.intent(tenant, "bad", kind, body)
                } else {
                    harness.count(tenant, &fresh(), &format!("c{}", i % 100), 1)
                }
            })
            .collect::<Vec<_>>()
    };
    let answers = lanes.submit(intents()).await;
    for (i, answer) in answers.iter().enumerate() {
        if i == bad {
            assert!(matches!(answer, Answer::Failed { .. }), "{answer:?}");
        } else {
            accepted(answer);
        }
    }
    assert_eq!(harness.stubs(tenant).await, 1_999);
    assert_eq!(
        harness.counter(tenant, "bad").await,
        None,
        "nothing of the bad one is there"
    );
    assert_eq!(harness.counter(tenant, "c0").await, Some(20));

    // The fault is mended: the same key lands.
    let mended = harness.count(tenant, "bad", "bad", 7);
    accepted(&lanes.submit(vec![mended]).await[0]);
}

#[tokio::test]
async fn a_kind_that_panics_fails_alone_and_can_be_sent_again() {
    among_two_thousand("faulty.panics").await;
}

#[tokio::test]
async fn a_kind_that_panics_over_its_needs_is_found_by_bisection_and_the_lane_lives() {
    among_two_thousand("faulty.needs_panics").await;
}

#[tokio::test]
async fn a_constraint_nobody_foresaw_fails_one_intent_alone_and_it_can_be_sent_again() {
    among_two_thousand("faulty.unforeseen").await;
}

#[tokio::test]
async fn a_permission_that_was_lost_fails_the_whole_batch_without_stubs() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    harness
        .admin
        .batch_execute("REVOKE UPDATE ON counterfoil.example_counter FROM counterfoil_lane")
        .await
        .unwrap();
    let lanes = harness.lanes().await;
    let answers = lanes
        .submit((0..5).map(|_| harness.count(tenant, &fresh(), "c", 1)).collect())
        .await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Answer::Unavailable { .. })),
        "{answers:?}"
    );
    assert_eq!(harness.stubs(tenant).await, 0);
    harness
        .admin
        .batch_execute("GRANT UPDATE ON counterfoil.example_counter TO counterfoil_lane")
        .await
        .unwrap();
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
}

#[tokio::test]
async fn a_full_disk_fails_the_whole_batch_without_stubs() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    // What PostgreSQL raises when it cannot extend a file, raised where it would extend one.
    let full = "CREATE FUNCTION public.disk_full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER disk_full BEFORE INSERT ON counterfoil.example_counter EXECUTE FUNCTION public.disk_full()";
    harness.admin.batch_execute(full).await.unwrap();
    let lanes = harness.lanes().await;
    let answers = lanes
        .submit((0..5).map(|_| harness.count(tenant, &fresh(), "c", 1)).collect())
        .await;
    assert!(
        answers
            .iter()
            .all(|answer| matches!(answer, Answer::Unavailable { .. })),
        "{answers:?}"
    );
    assert_eq!(harness.stubs(tenant).await, 0);
    harness
        .admin
        .batch_execute("DROP TRIGGER disk_full ON counterfoil.example_counter")
        .await
        .unwrap();
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_fails_the_whole_batch_without_stubs() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    // As after a failover to a server that is still a standby: 25006.
    let read_only = |value: &str| {
        format!(
            "ALTER ROLE counterfoil_lane IN DATABASE {} SET default_transaction_read_only = {value}",
            harness.test.name
        )
    };
    harness.admin.batch_execute(&read_only("on")).await.unwrap();
    let options = Options {
        reconnect: std::time::Duration::from_millis(300),
        ..Options::default()
    };
    let lanes = harness.lanes_on(harness.test.database(), options).await;
    let answers = lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await;
    assert!(matches!(answers[0], Answer::Unavailable { .. }), "{answers:?}");
    assert_eq!(harness.stubs(tenant).await, 0);
    harness.admin.batch_execute(&read_only("off")).await.unwrap();
    // The pool's connections still have the old setting; they are left behind on the way.
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
}
