//! What a lane waits for, what it does not, and what it says in the end.

use std::time::{Duration, Instant};

use counterfoil_intent::{Answer, Options};
use counterfoil_pg::{Database, Role, Scope};
use counterfoil_test::Server;
use futures_util::FutureExt as _;
use futures_util::future::join_all;

use crate::harness::{Harness, accepted, failures, fresh, metric, until};

fn one_lane() -> Options {
    Options {
        lanes: 1,
        ..Options::default()
    }
}

/// Another server has inserted the stub of a key, and does not come to its COMMIT.
#[tokio::test]
async fn a_foreign_uncommitted_stub_holds_up_its_tenant_only() {
    let harness = Harness::new(Server::Pg18).await;
    let held = harness.tenant().await;
    let mut others = Vec::new();
    for i in 0..20 {
        others.push(harness.test.tenant(&format!("t{i}")).await);
    }
    let lanes = harness.lanes_on(harness.test.database(), one_lane()).await;
    // So that nobody has rows to make.
    for tenant in others.iter().chain([&held]) {
        accepted(&lanes.submit(vec![harness.count(*tenant, "first", "c", 1)]).await[0]);
    }
    accepted(&lanes.submit(vec![harness.count(others[0], "k", "c", 1)]).await[0]);
    let columns = "key, gen, kind, origin, accepted, hashes, result, recorded_at";
    let copy = format!(
        "BEGIN; INSERT INTO counterfoil.stub (tenant_id, {columns})
            SELECT {held}, {columns} FROM counterfoil.stub WHERE tenant_id = {} AND kind = 'example.count'
            ORDER BY recorded_at DESC LIMIT 1",
        others[0]
    );
    harness.admin.batch_execute(&copy).await.unwrap();

    // In one batch with the others, and twice, so that one of them has to stay behind the other.
    let (first, second) = (harness.count(held, "k", "c", 1), harness.count(held, &fresh(), "c", 1));
    let mut waiting = tokio::spawn({
        let lanes = lanes.clone();
        async move { lanes.submit(vec![first, second]).await }
    });
    let intents = others.iter().map(|tenant| harness.count(*tenant, &fresh(), "c", 1));
    let start = Instant::now();
    let answers = lanes.submit(intents.collect()).await;
    for answer in &answers {
        accepted(answer);
    }
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "they waited for the foreign stub"
    );
    until("the tenant is aside", async || {
        metric(&lanes, "counterfoil_lane_detours_total{") == 1
    })
    .await;
    assert!((&mut waiting).now_or_never().is_none());
    harness.admin.batch_execute("ROLLBACK").await.unwrap();
    for (n, answer) in waiting.await.unwrap().iter().enumerate() {
        assert_eq!(*accepted(answer).result, format!(r#"{{"count":"{}"}}"#, n + 2));
    }
}

/// Every connection is taken for a while: that is no reason to turn anybody away.
#[tokio::test]
async fn a_pool_without_a_free_connection_is_waited_for() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let mut settings = harness.test.settings.clone();
    settings.pool_size.insert(Role::Lane, 1);
    settings.wait_timeout = Duration::from_millis(50);
    let database = Database::new(settings).unwrap();
    let lanes = harness.lanes_on(database.clone(), one_lane()).await;
    let taken = database
        .pool(Role::Lane)
        .begin(&Scope::tenants(vec![tenant]))
        .await
        .unwrap();
    let submit = tokio::spawn({
        let (lanes, intent) = (lanes.clone(), harness.count(tenant, "k", "c", 1));
        async move { lanes.submit(vec![intent]).await.remove(0) }
    });
    until("an attempt without a connection", async || {
        failures(&lanes, "reconnect") >= 1 || submit.is_finished()
    })
    .await;
    taken.rollback().await;
    accepted(&submit.await.unwrap());
}

/// Makes `example_counter` do something to the counter called `bad`.
async fn booby_trap(harness: &Harness, what: &str) {
    let sql = format!(
        "CREATE FUNCTION counterfoil.trap() RETURNS trigger LANGUAGE plpgsql AS $$
            BEGIN IF NEW.name = 'bad' THEN {what}; END IF; RETURN NEW; END $$;
         CREATE TRIGGER trap BEFORE INSERT OR UPDATE ON counterfoil.example_counter
            FOR EACH ROW EXECUTE FUNCTION counterfoil.trap();"
    );
    harness.admin.batch_execute(&sql).await.unwrap();
}

#[tokio::test]
async fn what_takes_longer_than_the_statement_timeout_is_found_and_the_others_land() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let name = &harness.test.name;
    let sql = format!("ALTER ROLE counterfoil_lane IN DATABASE \"{name}\" SET statement_timeout = '300ms'");
    harness.admin.batch_execute(&sql).await.unwrap();
    booby_trap(&harness, "PERFORM pg_sleep(30)").await;
    let lanes = harness.lanes_on(harness.test.database(), one_lane()).await;
    let intents = (0..8).map(|i| {
        let counter = if i == 5 { "bad" } else { "good" };
        lanes.submit(vec![harness.count(tenant, &format!("k{i}"), counter, 1)])
    });
    for (i, answers) in join_all(intents).await.iter().enumerate() {
        if i == 5 {
            let Answer::Unavailable { reason } = answers[0] else {
                panic!("{answers:?}")
            };
            assert!(reason.contains("timeout"), "{reason}");
        } else {
            accepted(&answers[0]);
        }
    }
    assert_eq!(harness.counter(tenant, "bad").await, None);
}

#[tokio::test]
async fn a_full_disk_and_a_missing_right_are_called_by_their_names() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    booby_trap(&harness, "RAISE EXCEPTION 'as if' USING ERRCODE = '53100'").await;
    let lanes = harness.lanes_on(harness.test.database(), one_lane()).await;
    let full = lanes.submit(vec![harness.count(tenant, &fresh(), "bad", 1)]).await;
    assert!(
        matches!(full[0], Answer::Unavailable { reason } if reason.contains("disk")),
        "{full:?}"
    );
    harness
        .admin
        .batch_execute("REVOKE UPDATE ON counterfoil.example_counter FROM counterfoil_lane")
        .await
        .unwrap();
    let denied = lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await;
    assert!(
        matches!(denied[0], Answer::Unavailable { reason } if reason.contains("right")),
        "{denied:?}"
    );
}
