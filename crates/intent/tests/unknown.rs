//! A COMMIT without a reply, and somebody else at the rows before its fate is known.

use std::time::Duration;

use counterfoil_intent::{Answer, Lanes, Options};
use counterfoil_pg::{Client, Database, TenantId};
use counterfoil_test::{FaultProxy, Server};
use futures_util::future::join_all;
use tokio::task::JoinHandle;

use crate::harness::{Harness, accepted, failures, fresh, metric, until};

/// One lane through a proxy, that waits for a COMMIT as long as `commit_timeout`.
async fn lane_through(harness: &Harness, proxy: &FaultProxy, commit_timeout: Duration, options: Options) -> Lanes {
    let mut settings = harness.test.settings_through(proxy);
    settings.commit_timeout = commit_timeout;
    let options = Options { lanes: 1, ..options };
    harness.lanes_on(Database::new(settings).unwrap(), options).await
}

/// One intent of each tenant, all in one batch: the lane wakes once all have been handed over, since
/// the runtime of these tests has one thread.
fn one_each(harness: &Harness, lanes: &Lanes, tenants: &[TenantId], key: &str) -> JoinHandle<Vec<Answer>> {
    let intents: Vec<_> = tenants
        .iter()
        .map(|tenant| harness.count(*tenant, key, "c", 1))
        .collect();
    let lanes = lanes.clone();
    tokio::spawn(async move {
        let calls = intents.into_iter().map(|intent| lanes.submit(vec![intent]));
        join_all(calls).await.into_iter().flatten().collect()
    })
}

async fn waiting_backends(client: &Client, of_lanes: bool) -> i64 {
    let sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
        AND wait_event_type = 'Lock' AND (usename = 'counterfoil_lane') = $1";
    client.query_one(sql, &[&of_lanes]).await.unwrap().get(0)
}

/// The COMMIT never arrives. While its transaction still holds the rows, somebody else queues up for
/// those of one tenant, and has them before the batch can be repeated.
#[tokio::test]
async fn a_tenant_held_by_somebody_else_after_a_lost_commit_holds_up_nobody_but_itself() {
    let harness = Harness::new(Server::Pg18).await;
    let (held, free) = (harness.tenant().await, harness.test.tenant("two").await);
    let proxy = harness.test.proxy().await;
    let options = Options {
        lock_timeout: Duration::from_millis(300),
        ..Options::default()
    };
    let lanes = lane_through(&harness, &proxy, Duration::from_secs(2), options).await;
    for answer in one_each(&harness, &lanes, &[held, free], "first").await.unwrap() {
        accepted(&answer);
    }
    let hold = proxy.lane().hold_commit(1);
    let one = one_each(&harness, &lanes, &[held], "k");
    let two = one_each(&harness, &lanes, &[free], "k");
    hold.reached().await;
    let sql = "SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND usename = 'counterfoil_lane' AND state = 'idle in transaction'";
    let twin: i32 = harness.admin.query_one(sql, &[]).await.unwrap().get(0);
    let foreign = harness.test.admin().await;
    let begin = format!("BEGIN; SELECT FROM counterfoil.example_counter WHERE tenant_id = {held} FOR UPDATE");
    let locked = async {
        foreign.batch_execute(&begin).await.unwrap();
    };
    let twin_ends = async {
        let queued = async || waiting_backends(&harness.admin, false).await == 1;
        until("the foreign session queues behind the batch", queued).await;
        until("both tenants are aside", async || aside(&lanes) == 2).await;
        // Their detours wait for the twin's stubs. Whoever is woken up first has the rows next, so both
        // are held back until the foreign session has them.
        let detours = [proxy.lane().hold_mid_batch(1), proxy.lane().hold_mid_batch(1)];
        for detour in &detours {
            detour.reached().await;
        }
        let sql = "SELECT pg_terminate_backend($1)";
        harness.admin.execute(sql, &[&twin]).await.unwrap();
        detours
    };
    let ((), detours) = tokio::join!(locked, twin_ends);
    drop((hold, detours));
    // Only the free tenant's answer comes now.
    let answer = two.await.unwrap().remove(0);
    assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    // The lock timeout has passed more than once, and "busy" would say that nothing was done.
    let before = failures(&lanes, "retry");
    until("the detour asks again", async || {
        assert!(!one.is_finished());
        failures(&lanes, "retry") >= before + 2
    })
    .await;
    assert!(!one.is_finished());
    foreign.batch_execute("COMMIT").await.unwrap();
    let answer = one.await.unwrap().remove(0);
    assert!(matches!(answer, Answer::First(_)), "{answer:?}");
    for tenant in [held, free] {
        assert_eq!(harness.counter(tenant, "c").await, Some(2));
        assert_eq!(harness.stubs(tenant).await, 2);
    }
}

/// The transaction of a lost COMMIT keeps its rows for longer than anybody waits, and there are more
/// tenants than detours: whether a tenant's turn comes or not, it is never told that nothing was done.
#[tokio::test]
async fn tenants_for_which_no_detour_is_free_after_a_lost_commit_are_told_that_nobody_knows() {
    let harness = Harness::new(Server::Pg15).await;
    let mut tenants = Vec::new();
    for i in 0..5 {
        tenants.push(harness.test.tenant(&format!("t{i}")).await);
    }
    let proxy = harness.test.proxy().await;
    let options = Options {
        lock_timeout: Duration::from_millis(200),
        reconnect: Duration::from_millis(500),
        detours: 1,
        ..Options::default()
    };
    let lanes = lane_through(&harness, &proxy, Duration::from_millis(200), options).await;
    for answer in one_each(&harness, &lanes, &tenants, "first").await.unwrap() {
        accepted(&answer);
    }
    let hold = proxy.lane().hold_commit(1);
    let answers = one_each(&harness, &lanes, &tenants, "k");
    hold.reached().await;
    let answers = answers.await.unwrap();
    for answer in &answers {
        assert!(matches!(answer, Answer::Unknown), "{answers:?}");
    }
    assert_eq!(aside(&lanes), 5);
    hold.release();
    // Now the twin commits; who asks again is waited for with it, and finds its stub.
    let again = one_each(&harness, &lanes, &tenants, "k").await.unwrap();
    for answer in &again {
        assert!(matches!(answer, Answer::Replayed(_)), "{again:?}");
    }
    for tenant in tenants {
        assert_eq!(harness.counter(tenant, "c").await, Some(2));
    }
}

/// Nothing is held: the batch is repeated as one, whatever the number of tenants.
#[tokio::test]
async fn a_lost_commit_of_many_tenants_is_repeated_at_once_and_in_order() {
    let harness = Harness::new(Server::Pg18).await;
    let mut tenants = Vec::new();
    for i in 0..40 {
        tenants.push(harness.test.tenant(&format!("t{i}")).await);
    }
    let proxy = harness.test.proxy().await;
    let lanes = lane_through(&harness, &proxy, Duration::from_secs(5), Options::default()).await;
    accepted(&lanes.submit(vec![harness.count(tenants[0], &fresh(), "c", 1)]).await[0]);
    let fault = proxy.lane().cut_before_commit(1);
    let mut intents = Vec::new();
    for _ in 0..2 {
        intents.extend(
            tenants[1..]
                .iter()
                .map(|tenant| harness.count(*tenant, &fresh(), "c", 1)),
        );
    }
    let answers = lanes.submit(intents).await;
    fault.fired().await;
    for (n, answer) in answers.iter().enumerate() {
        assert!(matches!(answer, Answer::First(_)), "{answer:?}");
        let count = if n < 39 { 1 } else { 2 };
        assert_eq!(*accepted(answer).result, format!(r#"{{"count":"{count}"}}"#));
    }
    assert_eq!(aside(&lanes), 0);
}

fn aside(lanes: &Lanes) -> u64 {
    metric(lanes, "counterfoil_lane_detours_total{")
}
