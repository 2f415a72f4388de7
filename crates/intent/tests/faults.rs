//! Connections that end where it hurts, and a PostgreSQL that goes away.

use std::time::Duration;

use counterfoil_intent::{Answer, Generations, Kinds, Lanes, Limits, Options};
use counterfoil_pg::{Database, Role, Scope, TenantId};
use counterfoil_test::{Fault, Faults, Hold, Server, TestCluster};
use serde_json::value::RawValue;

use crate::add_a_kind;
use crate::harness::{Harness, accepted, fresh, until};

/// A batch of five meets a fault, and still lands exactly once: every caller has a first answer.
async fn lands_once_in_spite_of(server: Server, arm: impl Fn(&Faults) -> Fault) {
    let harness = Harness::new(server).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let lanes = harness
        .lanes_on(harness.test.database_through(&proxy), Options::default())
        .await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    let fault = arm(&proxy.lane());
    let answers = lanes
        .submit((0..5).map(|_| harness.count(tenant, &fresh(), "c", 1)).collect())
        .await;
    fault.fired().await;
    for (n, answer) in answers.iter().enumerate() {
        assert!(
            matches!(answer, Answer::First(_)),
            "its own stub is a first answer: {answer:?}"
        );
        assert_eq!(*accepted(answer).result, format!(r#"{{"count":"{}"}}"#, n + 2));
    }
    assert_eq!(harness.counter(tenant, "c").await, Some(6));
    assert_eq!(harness.stubs(tenant).await, 6);
}

#[tokio::test]
async fn a_connection_lost_before_commit_is_sent_lands_once() {
    lands_once_in_spite_of(Server::Pg18, |lane| lane.cut_before_commit(1)).await;
}

#[tokio::test]
async fn a_connection_lost_after_commit_with_its_reply_lands_once_as_a_first_answer() {
    lands_once_in_spite_of(Server::Pg15, |lane| lane.cut_after_commit(1)).await;
}

#[tokio::test]
async fn a_connection_lost_while_commit_is_under_way_lands_once() {
    lands_once_in_spite_of(Server::Pg18, |lane| lane.cut_while_committing(1)).await;
}

#[tokio::test]
async fn a_connection_lost_in_mid_batch_lands_once_wherever_that_is() {
    for nth in 1..=8 {
        lands_once_in_spite_of(Server::Pg18, |lane| lane.cut_mid_batch(nth)).await;
    }
}

/// What is sent vanishes in mid-batch, and nobody says so. The wait for a reply is longer than all the
/// time that a batch has to find the server again, and still it is tried once more.
#[tokio::test]
async fn a_batch_whose_connection_goes_silent_lands_on_another() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let mut settings = harness.test.settings_through(&proxy);
    settings.reply_timeout.insert(Role::Lane, Duration::from_secs(1));
    let options = Options {
        reconnect: Duration::from_millis(100),
        ..Options::default()
    };
    let lanes = harness.lanes_on(Database::new(settings).unwrap(), options).await;
    let hold = proxy.lane().hold_mid_batch(3);
    let submit = lanes.submit((0..5).map(|_| harness.count(tenant, &fresh(), "c", 1)).collect());
    let answers = tokio::time::timeout(Duration::from_secs(30), submit).await;
    assert!(hold.is_holding());
    for answer in answers.expect("it is given up in time") {
        assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    }
    assert_eq!(harness.counter(tenant, "c").await, Some(5));
}

/// The reply to COMMIT is lost, the caller gives up and comes back with the same key through
/// another server: a replay, not a second effect.
#[tokio::test]
async fn a_lost_first_answer_is_found_by_the_retry_through_another_server() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let (one, other) = (harness.lanes().await, harness.lanes().await);
    // The caller hangs up: its future is dropped as soon as the intent is on its way.
    let mut gone = Box::pin(one.submit(vec![harness.count(tenant, "k", "c", 1)]));
    tokio::select! {
        biased;
        _ = &mut gone => {}
        () = std::future::ready(()) => {}
    }
    drop(gone);
    assert!(one.shutdown().await, "what was accepted lands, whoever still listens");
    let answers = other.submit(vec![harness.count(tenant, "k", "c", 1)]).await;
    assert!(matches!(answers[0], Answer::Replayed(_)), "{answers:?}");
    assert_eq!(harness.counter(tenant, "c").await, Some(1));
}

/// COMMIT is on its way and nobody knows whether it arrived. The lane runs the batch again, which
/// waits for its twin; the twin commits; its stubs are the lane's own.
#[tokio::test]
async fn a_twin_still_committing_is_waited_for() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let mut settings = harness.test.settings_through(&proxy);
    // The lane stops waiting for the reply soon, while the proxy still holds the COMMIT.
    settings.commit_timeout = Duration::from_millis(200);
    let lanes = harness
        .lanes_on(Database::new(settings).unwrap(), Options::default())
        .await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    let hold: Hold = proxy.lane().hold_commit(1);
    let submit = tokio::spawn({
        let (lanes, intent) = (lanes.clone(), harness.count(tenant, "k", "c", 1));
        async move { lanes.submit(vec![intent]).await.remove(0) }
    });
    hold.reached().await;
    wait_for_a_waiting_lane(&harness).await;
    hold.release();
    let answer = submit.await.unwrap();
    assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    assert_eq!(harness.counter(tenant, "c").await, Some(2));
    assert_eq!(harness.stubs(tenant).await, 2);
}

/// The same for a batch of two tenants, beside a third in the same lane: it waits for nobody's twin.
#[tokio::test]
async fn a_commit_whose_fate_is_open_does_not_hold_up_the_lane() {
    let harness = Harness::new(Server::Pg15).await;
    let (one, two) = (harness.tenant().await, harness.test.tenant("two").await);
    let other = harness.test.tenant("three").await;
    let proxy = harness.test.proxy().await;
    let mut settings = harness.test.settings_through(&proxy);
    settings.commit_timeout = Duration::from_millis(200);
    let options = Options {
        lanes: 1,
        ..Options::default()
    };
    let lanes = harness.lanes_on(Database::new(settings).unwrap(), options).await;
    for tenant in [one, two, other] {
        accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    }
    let hold: Hold = proxy.lane().hold_commit(1);
    let submit = tokio::spawn({
        let lanes = lanes.clone();
        let intents = vec![harness.count(one, "k", "c", 1), harness.count(two, "k", "c", 1)];
        async move { lanes.submit(intents).await }
    });
    hold.reached().await;
    wait_for_a_waiting_lane(&harness).await;
    for _ in 0..10 {
        accepted(&lanes.submit(vec![harness.count(other, &fresh(), "c", 1)]).await[0]);
    }
    assert!(!submit.is_finished(), "the twin has still not committed");
    hold.release();
    for answer in submit.await.unwrap() {
        assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    }
    assert_eq!(
        (harness.counter(one, "c").await, harness.counter(two, "c").await),
        (Some(2), Some(2))
    );
    assert_eq!((harness.stubs(one).await, harness.stubs(two).await), (2, 2));
}

/// A server that does not answer holds up what it was asked, not the callers behind that whose time is over.
#[tokio::test]
async fn who_waits_behind_a_commit_that_does_not_come_is_answered_at_the_deadline() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let options = Options {
        lanes: 1,
        batch: 1,
        ..Options::default()
    };
    let database = Database::new(harness.test.settings_through(&proxy)).unwrap();
    let lanes = harness.lanes_on(database, options).await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    let hold: Hold = proxy.lane().hold_commit(1);
    let submit = tokio::spawn({
        let (lanes, intent) = (lanes.clone(), harness.count(tenant, "k", "c", 1));
        async move { lanes.submit(vec![intent]).await.remove(0) }
    });
    hold.reached().await;
    let by = std::time::Instant::now() + Duration::from_millis(300);
    let late = (0..9).map(|_| harness.count(tenant, &fresh(), "c", 1).with_deadline(Some(by)));
    let late: Vec<_> = late.map(|intent| lanes.submit(vec![intent])).collect();
    // Of nine, each a batch of its own, two may be under way beside the one that is held.
    let (answered, mut begun) = (std::sync::atomic::AtomicUsize::new(0), Vec::new());
    let all = futures_util::future::join_all(late.into_iter().map(async |answers| {
        let answer = answers.await.remove(0);
        answered.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answer
    }));
    let held = async {
        let enough = async || answered.load(std::sync::atomic::Ordering::Relaxed) >= 7;
        until("callers are answered", enough).await;
        assert!(hold.is_holding() && !submit.is_finished());
        hold.release();
    };
    let (answers, ()) = tokio::join!(all, held);
    let mut passed = 0;
    for answer in answers {
        match answer {
            Answer::DeadlinePassed => passed += 1,
            answer => begun.push(answer),
        }
    }
    assert!(passed >= 7, "{passed}");
    begun.iter().for_each(|answer| {
        accepted(answer);
    });
    accepted(&submit.await.unwrap());
    let landed = 2 + i64::try_from(begun.len()).unwrap();
    assert_eq!(harness.counter(tenant, "c").await, Some(landed));
    assert!(lanes.shutdown().await);
}

/// Until a lane's backend waits for a lock: the second run of the batch stands behind the first.
async fn wait_for_a_waiting_lane(harness: &Harness) {
    let sql = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND usename = 'counterfoil_lane' AND wait_event_type = 'Lock'";
    while harness.admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::task::yield_now().await;
    }
}

/// PostgreSQL cannot be reached: 503, nothing done, and the lane goes on once it is back.
#[tokio::test]
async fn a_database_that_went_away_gives_503_and_the_lane_goes_on_when_it_is_back() {
    let harness = Harness::new(Server::Pg15).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let options = Options {
        reconnect: Duration::from_millis(300),
        ..Options::default()
    };
    let lanes = harness.lanes_on(harness.test.database_through(&proxy), options).await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    proxy.shut();
    proxy.cut_all();
    let answers = lanes.submit(vec![harness.count(tenant, "k", "c", 1)]).await;
    assert!(matches!(answers[0], Answer::Unavailable { .. }), "{answers:?}");
    proxy.open();
    accepted(&lanes.submit(vec![harness.count(tenant, "k", "c", 1)]).await[0]);
    assert_eq!(harness.counter(tenant, "c").await, Some(2));
}

/// The reply to COMMIT is lost and the database stays away: nobody can know, and nobody guesses.
#[tokio::test]
async fn a_commit_whose_fate_cannot_be_learnt_is_unknown_and_its_stub_tells_later() {
    let harness = Harness::new(Server::Pg18).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let options = Options {
        reconnect: Duration::from_millis(300),
        ..Options::default()
    };
    let lanes = harness.lanes_on(harness.test.database_through(&proxy), options).await;
    accepted(&lanes.submit(vec![harness.count(tenant, &fresh(), "c", 1)]).await[0]);
    let fault = proxy.lane().cut_after_commit(1);
    proxy.shut();
    let answers = lanes.submit(vec![harness.count(tenant, "k", "c", 1)]).await;
    fault.fired().await;
    assert!(matches!(answers[0], Answer::Unknown), "{answers:?}");
    proxy.open();
    let again = lanes.submit(vec![harness.count(tenant, "k", "c", 1)]).await;
    assert!(matches!(again[0], Answer::Replayed(_)), "{again:?}");
    assert_eq!(harness.counter(tenant, "c").await, Some(2));
}

#[tokio::test]
async fn behind_pgbouncer_no_statement_is_ever_named_and_intents_land() {
    let harness = Harness::new(Server::PgBouncer).await;
    let tenant = harness.tenant().await;
    let proxy = harness.test.proxy().await;
    let lanes = harness
        .lanes_on(harness.test.database_through(&proxy), Options::default())
        .await;
    for round in 0..20 {
        let batch = (0..10)
            .map(|i| harness.count(tenant, &fresh(), &format!("c{round}-{i}"), 1))
            .collect();
        for answer in lanes.submit(batch).await {
            accepted(&answer);
        }
    }
    let seen = proxy.seen();
    assert_eq!(seen.named_parses, 0);
    assert!(seen.parses > 100, "{seen:?}");
}

/// PostgreSQL stops as in a crash, again and again, under load; callers retry every intent until it
/// has an answer. Each counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_stopped_immediate_under_load_loses_nothing_and_doubles_nothing() {
    let mut cluster = TestCluster::start(Server::Pg18, &[]).await;
    let database = cluster.database("shop").await;
    let tx = database.pool(Role::Owner).begin(&Scope::Installation).await.unwrap();
    tx.batch(add_a_kind::MIGRATION).await.unwrap();
    tx.commit().await.unwrap();
    let generations = Generations::load(&database).await.unwrap();
    generations.rotate(&database).await.unwrap();
    let mut kinds = Kinds::new();
    add_a_kind::register(&mut kinds);
    let lanes = Lanes::start(database.clone(), kinds.clone(), generations, Options::default());
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let (lanes, kinds) = (lanes.clone(), kinds.clone());
            tokio::spawn(async move {
                for n in 0..200 {
                    until_answered(
                        &lanes,
                        &kinds,
                        &format!("k-{caller}-{n}"),
                        &format!("c-{caller}-{}", n / 50),
                    )
                    .await;
                }
            })
        })
        .collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        cluster.stop_immediately().await;
        cluster.restart().await;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let tx = database
        .pool(Role::Lane)
        .begin(&Scope::tenants(vec![TenantId(1)]))
        .await
        .unwrap();
    static SUM: counterfoil_pg::Sql = counterfoil_pg::Sql {
        name: "sum",
        text: "SELECT sum(count)::bigint, (SELECT count(*) FROM counterfoil.stub WHERE tenant_id = 1)
            FROM counterfoil.example_counter WHERE tenant_id = 1",
        params: &[],
    };
    let row = tx.query_one(&SUM, &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (3_200, 3_200));
}

/// As a careful caller does: the same key until there is an answer that says what happened.
async fn until_answered(lanes: &Lanes, kinds: &Kinds, key: &str, counter: &str) {
    let raw = format!(r#"{{"key":"{key}","kind":"example.count","body":{{"counter":"{counter}","by":1}}}}"#);
    let raw = RawValue::from_string(raw).unwrap();
    loop {
        let intent = kinds.intent(Limits::default(), TenantId(1), None, &raw).unwrap();
        match lanes.submit(vec![intent]).await.remove(0) {
            Answer::First(stub) | Answer::Replayed(stub) => return assert!(stub.accepted, "{stub:?}"),
            Answer::Unknown | Answer::Unavailable { .. } | Answer::Busy => {}
            other => panic!("{other:?}"),
        }
    }
}
