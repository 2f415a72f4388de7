//! At the edge: reads that take long, and the writes that are no intents.

use std::collections::BTreeSet;

use counterfoil_test::Server;
use futures_util::future::join_all;
use serde_json::json;

use crate::harness::{House, open_books, until};

/// Questions that go through every entry have connections of their own, and a tenant only so many at a
/// time: all that others need is free, however many are asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "somebody from outside is in the way")]
async fn slow_reads_of_one_tenant_leave_the_rest_alone() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up).ready().await;
    open_books(&mut client, &["till"]).await;
    let slow = "/accounts/till?effective_as_of=2026-01-01T00:00:00Z";
    assert_eq!(client.get(slow).await.status, 200);

    // Whoever reads entries waits, as if there were a hundred million of them.
    let mut foreign = house.test.admin().await;
    let lock = foreign.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE counterfoil.ledger_entry IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let ask = || {
        let mut client = client.clone();
        tokio::spawn(async move { client.get(slow).await })
    };
    let asked: Vec<_> = (0..2).map(|_| ask()).collect();
    until("both wait", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND usename = 'counterfoil_report' AND wait_event_type = 'Lock'";
        house.number(waiting).await == 2
    })
    .await;
    for more in join_all((0..12).map(|_| ask())).await {
        let more = more.unwrap();
        assert_eq!(more.verdict(), (429, "too_many_reads".to_owned()));
        assert_eq!(more.header("retry-after"), Some("1"));
    }
    // The pool of the app is as free as before.
    for path in ["/stubs/none", "/accounts/till", "/accounts"] {
        assert_eq!(client.get(path).await.status, 200, "{path}");
    }
    assert_eq!(client.send("GET", "/readyz", &[], b"").await.unwrap().status, 200);
    lock.rollback().await.unwrap();
    for answer in asked {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(client.get(slow).await.status, 200, "its turns have come back");
    up.stop().await;
}

/// Every connection that work could have is taken, by statements that wait for a lock; that is no reason
/// to take the server out of service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::disallowed_methods, reason = "somebody from outside is in the way")]
async fn readiness_needs_no_connection_that_others_may_hold() {
    let house = House::new(Server::Pg15).await;
    let up = house.up().await;
    let mut client = house.client(&up).ready().await;
    open_books(&mut client, &["till"]).await;
    let mut foreign = house.test.admin().await;
    let lock = foreign.transaction().await.unwrap();
    lock.batch_execute("LOCK TABLE counterfoil.ledger_account IN ACCESS EXCLUSIVE MODE")
        .await
        .unwrap();
    let asked: Vec<_> = (0..8)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move { client.get("/accounts/till").await })
        })
        .collect();
    until("the pool of the app is used up", async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND usename = 'counterfoil_app' AND wait_event_type = 'Lock'";
        house.number(waiting).await == 8
    })
    .await;
    let ready = client.send("GET", "/readyz", &[], b"").await.unwrap();
    assert_eq!(ready.status, 200, "{}", ready.text());
    lock.rollback().await.unwrap();
    join_all(asked).await;
    up.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_operators_with_one_key_make_one_tenant_over_two_servers() {
    let house = House::new(Server::Pg15).await;
    let servers = house.two().await;
    let ask = async |at: usize, key: &str, body: serde_json::Value| {
        let headers = [("Idempotency-Key", key), ("Content-Type", "application/json")];
        house
            .client(&servers[at])
            .send("POST", "/v1/tenants", &headers, body.to_string().as_bytes())
            .await
            .unwrap()
    };
    let answers = join_all((0..32).map(|i| ask(i % 2, "shop-9", json!({"name": "Shop 9"})))).await;
    let bodies: BTreeSet<_> = answers.iter().map(|answer| answer.text().to_owned()).collect();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    let firsts = answers
        .iter()
        .filter(|answer| answer.status == 201 && !answer.replayed());
    assert_eq!(firsts.count(), 1);
    let replays = answers
        .iter()
        .filter(|answer| answer.status == 200 && answer.replayed());
    assert_eq!(replays.count(), 31);
    let other = ask(0, "shop-9", json!({"name": "Shop 10"})).await;
    assert_eq!(other.verdict(), (422, "key_reused".to_owned()));
    assert_eq!(other.json()["field"], "name");
    assert_eq!(house.number("SELECT count(*) FROM counterfoil.tenant").await, 2);
    for up in servers {
        up.stop().await;
    }
}
