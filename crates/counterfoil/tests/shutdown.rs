//! A server that is told to stop lands what it has accepted.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use counterfoil_test::Server;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{House, Up, fresh, open_books, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_201_under_load_has_its_stub_after_a_shutdown_and_every_503_has_none() {
    let house = House::new(Server::Pg18).await;
    let mut up = house.up().await;
    open_books(&mut house.client(&up), &["till"]).await;
    let landed = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    for _ in 0..32 {
        let (mut client, landed) = (house.client(&up), Arc::clone(&landed));
        callers.spawn(async move {
            // Keys with their answer, and those of which nobody knows.
            let (mut done, mut not_done, mut open) = (Vec::new(), Vec::new(), Vec::new());
            loop {
                let key = fresh();
                let body = json!({ "key": key, "from": "bank", "to": "till", "amount": "1" });
                match client.try_post("/transfers", &body).await {
                    Ok(answer) if answer.status == 201 => {
                        landed.fetch_add(1, Ordering::Relaxed);
                        done.push(key);
                    }
                    Ok(answer) => {
                        assert_eq!(answer.verdict(), (503, "shutting_down".to_owned()));
                        not_done.push(key);
                    }
                    Err(_) => {
                        open.push(key);
                        return (done, not_done, open);
                    }
                }
            }
        });
    }
    until("there is load", async || landed.load(Ordering::Relaxed) > 500).await;
    up.interrupt();
    let (code, log) = up.ended().await;
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains("landing what was accepted") && !log.contains("ERROR"),
        "{log}"
    );
    let (mut done, mut not_done, mut open) = (Vec::new(), Vec::new(), Vec::new());
    for told in callers.join_all().await {
        done.extend(told.0);
        not_done.extend(told.1);
        open.extend(told.2);
    }
    let stubs = stubs(&house).await;
    assert!(done.iter().all(|key| stubs.contains(key)), "every 201 has its stub");
    assert!(!not_done.iter().any(|key| stubs.contains(key)), "no 503 has one");
    let known: HashSet<&String> = done.iter().chain(&open).collect();
    assert!(
        stubs.iter().all(|key| known.contains(key)),
        "and no stub comes from nowhere"
    );
    println!(
        "{} done, {} not done, {} without an answer",
        done.len(),
        not_done.len(),
        open.len()
    );
    house.check().await;
}

/// The keys of transfers that have a stub.
#[allow(clippy::disallowed_methods, reason = "a look from outside")]
async fn stubs(house: &House) -> HashSet<String> {
    let sql = "SELECT encode(substring(key FROM 2), 'escape') FROM counterfoil.stub WHERE kind = 'ledger.transfer'";
    house
        .admin
        .query(sql, &[])
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect()
}

#[tokio::test]
async fn what_is_on_its_way_when_the_server_is_told_to_stop_is_landed_and_answered() {
    let house = House::new(Server::Pg15).await;
    let proxy = house.test.proxy().await;
    let mut up = Up::start(&house.home_behind(&proxy), &[]).await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    // One whose COMMIT is held up, and others that wait behind it in the lane.
    let commit = proxy.lane().hold_commit(1);
    let mut waiting = JoinSet::new();
    for n in 0..20 {
        let mut client = client.clone();
        let body = json!({ "key": format!("k{n}"), "from": "bank", "to": "till", "amount": "1" });
        waiting.spawn(async move { client.post("/transfers", &body).await });
        if n == 0 {
            commit.reached().await;
        }
    }
    for n in 0..20 {
        until("it is in flight", async || {
            client.clone().stub_state(&format!("k{n}")).await == "in_flight"
        })
        .await;
    }
    up.interrupt();
    let address = up.address;
    until("nobody new is let in", async || {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    assert_eq!(house.transfers().await, 0);
    commit.release();
    for answer in waiting.join_all().await {
        assert_eq!((answer.status, answer.replayed()), (201, false), "{}", answer.text());
    }
    let (code, log) = up.ended().await;
    assert_eq!(code, Some(0), "{log}");
    assert_eq!((house.transfers().await, house.stubs().await), (20, 23));
    house.check().await;
}
