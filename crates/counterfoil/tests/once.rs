//! Promises 1 and 2 over server processes: one stub, and the same answer for the same key.

use std::collections::BTreeMap;
use std::sync::Arc;

use counterfoil_test::Server;
use serde_json::{Value, json};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::client::{Client, Response};
use crate::harness::{House, Up, fresh, fund, open_books, transfer};

/// Every caller sends its body at the same moment, half of them to each server.
async fn at_once(house: &House, servers: &[Up; 2], path: &str, bodies: Vec<Value>) -> Vec<Response> {
    let barrier = Arc::new(Barrier::new(bodies.len()));
    let mut calls = JoinSet::new();
    for (i, body) in bodies.into_iter().enumerate() {
        let (barrier, path) = (Arc::clone(&barrier), path.to_owned());
        let client = house.client(&servers[i % 2]);
        calls.spawn(async move {
            let mut client: Client = client.ready().await;
            barrier.wait().await;
            client.post(&path, &body).await
        });
    }
    calls.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_1_sixty_four_callers_of_one_key_and_body_over_two_servers_have_one_effect_and_equal_answers() {
    let house = House::new(Server::Pg18).await;
    let servers = house.two().await;
    open_books(&mut house.client(&servers[0]), &["till"]).await;
    let body = json!({ "key": "the-key", "from": "bank", "to": "till", "amount": "5" });
    let answers = at_once(&house, &servers, "/transfers", vec![body; 64]).await;
    let firsts: Vec<_> = answers.iter().filter(|answer| !answer.replayed()).collect();
    assert_eq!(firsts.len(), 1, "one of them was first");
    assert_eq!(firsts[0].status, 201);
    for answer in &answers {
        assert_eq!(answer.status, if answer.replayed() { 200 } else { 201 });
        assert_eq!(answer.text(), firsts[0].text(), "letter by letter");
    }
    assert_eq!(house.client(&servers[1]).account("till", "posted").await, "5.00");
    assert_eq!((house.transfers().await, house.entries().await), (1, 2));
    assert_eq!(house.stubs().await, 4, "asset, two accounts, one transfer");
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_1_sixty_four_callers_of_one_key_with_two_bodies_have_one_effect_and_the_others_are_told_the_field() {
    let house = House::new(Server::Pg15).await;
    let servers = house.two().await;
    open_books(&mut house.client(&servers[0]), &["till"]).await;
    let body = |amount: &str| json!({ "key": "the-key", "from": "bank", "to": "till", "amount": amount });
    // Either body comes to either server.
    let bodies = (0..64).map(|i| body(if i % 4 < 2 { "5" } else { "7.00" })).collect();
    let answers = at_once(&house, &servers, "/transfers", bodies).await;
    let with = |status: u16| answers.iter().filter(move |answer| answer.status == status);
    assert_eq!((with(201).count(), with(200).count(), with(422).count()), (1, 31, 32));
    for other in with(422) {
        assert_eq!(
            (other.code().as_str(), &other.json()["field"]),
            ("key_reused", &json!("amount"))
        );
    }
    let posted = house.client(&servers[0]).account("till", "posted").await;
    assert!(posted == "5.00" || posted == "7.00", "{posted}");
    assert_eq!(
        (house.transfers().await, house.entries().await, house.stubs().await),
        (1, 2, 4)
    );
    house.check().await;
}

#[tokio::test]
async fn case_2_the_same_key_twice_in_one_array_is_replayed_and_with_another_body_refused() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    let array = json!([
        transfer("k", "bank", "till", "5"),
        transfer("k", "bank", "till", "5.00"),
        transfer("k", "bank", "till", "6"),
        transfer("other", "bank", "till", "1"),
    ]);
    let items = client.post("/intents", &array).await.items();
    let shown: Vec<_> = items
        .iter()
        .map(|item| (item["status"].as_u64(), item["replayed"].as_bool()))
        .collect();
    let expected = [(201, false), (200, true), (422, false), (201, false)];
    assert_eq!(shown, expected.map(|(status, replayed)| (Some(status), Some(replayed))));
    assert_eq!(items[0]["result"], items[1]["result"]);
    assert_eq!(items[2]["field"], "body.amount");
    assert_eq!(client.account("till", "posted").await, "6.00");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_2_the_same_keys_in_two_batches_at_once_through_two_servers_land_once_each() {
    let house = House::new(Server::Pg15).await;
    let servers = house.two().await;
    open_books(&mut house.client(&servers[0]), &["till"]).await;
    let keys: Vec<String> = (0..500).map(|_| fresh()).collect();
    // In opposite orders, so that neither server is ahead of the other on all of them.
    let array = |keys: &mut dyn Iterator<Item = &String>| {
        Value::Array(keys.map(|key| transfer(key, "bank", "till", "1")).collect())
    };
    let bodies = vec![
        array(&mut keys.iter()),
        array(&mut keys.iter().rev()),
        array(&mut keys.iter().rev()),
        array(&mut keys.iter()),
    ];
    let answers = at_once(&house, &servers, "/intents", bodies).await;
    let mut results: BTreeMap<String, Vec<(bool, String)>> = BTreeMap::new();
    for item in answers.iter().flat_map(Response::items) {
        let replayed = item["replayed"].as_bool().unwrap();
        assert_eq!(item["status"], if replayed { 200 } else { 201 }, "{item}");
        let key = item["key"].as_str().unwrap().to_owned();
        results
            .entry(key)
            .or_default()
            .push((replayed, item["result"].to_string()));
    }
    assert_eq!(results.len(), 500);
    for (key, told) in results {
        assert_eq!(told.len(), 4);
        assert_eq!(
            told.iter().filter(|(replayed, _)| !replayed).count(),
            1,
            "{key}: one of the four was first"
        );
        assert!(told.iter().all(|(_, result)| *result == told[0].1), "{key}: {told:?}");
    }
    assert_eq!(house.client(&servers[1]).account("till", "posted").await, "500.00");
    assert_eq!((house.transfers().await, house.entries().await), (500, 1000));
    house.check().await;
}

#[tokio::test]
async fn case_2_the_same_key_after_a_restart_and_after_a_kill_is_replayed() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    // One whose stub is found by its time, and one whose is not.
    let v7 = house
        .number("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        .await
        .unsigned_abs();
    let v7 = uuid::Builder::from_unix_timestamp_millis(v7, &[3; 10])
        .into_uuid()
        .to_string();
    let bodies = ["k", &v7].map(|key| json!({ "key": key, "from": "bank", "to": "till", "amount": "5" }));
    let mut firsts = Vec::new();
    for body in &bodies {
        let first = client.post("/transfers", body).await;
        assert_eq!((first.status, first.replayed()), (201, false));
        firsts.push(first);
    }
    up.stop().await;
    let up = house.up().await;
    for (body, first) in bodies.iter().zip(&firsts) {
        let again = house.client(&up).post("/transfers", body).await;
        assert_eq!(
            (again.status, again.replayed(), again.text()),
            (200, true, first.text())
        );
    }
    up.kill().await;
    let up = house.up().await;
    for (body, first) in bodies.iter().zip(&firsts) {
        let again = house.client(&up).post("/transfers", body).await;
        assert_eq!(
            (again.status, again.replayed(), again.text()),
            (200, true, first.text())
        );
    }
    assert_eq!(house.client(&up).account("till", "posted").await, "10.00");
}

#[tokio::test]
async fn case_2_a_caller_who_hung_up_before_the_first_answer_gets_it_as_a_replay() {
    let house = House::new(Server::Pg15).await;
    let proxy = house.test.proxy().await;
    let up = Up::start(&house.home_behind(&proxy), &[]).await;
    let other = house.up().await;
    let mut client = house.client(&up).ready().await;
    open_books(&mut client, &["till"]).await;
    for key in ["same-server", "other-server"] {
        let body = json!({ "key": key, "from": "bank", "to": "till", "amount": "5" });
        // The caller goes while COMMIT is on its way: nobody is there when the answer comes.
        let commit = proxy.lane().hold_commit(1);
        let connection = client.send_only("/transfers", &body).await;
        commit.reached().await;
        assert_eq!(client.stub_state(key).await, "in_flight");
        drop(connection);
        commit.release();
        let mut again = house.client(if key == "same-server" { &up } else { &other });
        let answer = again.post("/transfers", &body).await;
        assert_eq!((answer.status, answer.replayed()), (200, true), "{}", answer.text());
        assert_eq!(again.stub_state(key).await, "found");
    }
    assert_eq!(client.account("till", "posted").await, "10.00");
    assert_eq!(house.transfers().await, 2);
}

#[tokio::test]
async fn case_3_a_refused_transfer_replays_as_refused_after_the_money_has_arrived() {
    let house = House::new(Server::Pg18).await;
    let servers = house.two().await;
    let mut client = house.client(&servers[0]);
    open_books(&mut client, &["till", "shop"]).await;
    let body = json!({ "key": "too-early", "from": "till", "to": "shop", "amount": "5" });
    let refused = client.post("/transfers", &body).await;
    assert_eq!(refused.verdict(), (409, "floor_crossed".to_owned()));
    assert!(!refused.replayed());
    assert_eq!(refused.json()["field"], "from");
    fund(&mut client, "till", "100").await;
    for server in &servers {
        let again = house.client(server).post("/transfers", &body).await;
        assert_eq!(
            (again.status, again.replayed(), again.text()),
            (409, true, refused.text())
        );
    }
    assert_eq!(client.account("till", "posted").await, "100.00");
    let stub = client.get("/stubs/too-early").await.json();
    assert_eq!(
        (&stub["outcome"], &stub["refusal"]["code"]),
        (&json!("refused"), &json!("floor_crossed"))
    );
    let retried = json!({ "key": "now", "from": "till", "to": "shop", "amount": "5" });
    assert_eq!(client.post("/transfers", &retried).await.status, 201);
    house.check().await;
}

#[tokio::test]
async fn case_4_keys_that_are_none_are_told_and_leave_nothing() {
    let house = House::new(Server::Pg15).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    let stubs = house.stubs().await;
    let json = ("content-type", "application/json");
    let body = |key: &str| format!(r#"{{{key}"from":"bank","to":"till","amount":"5"}}"#);
    let long = "x".repeat(256);
    let in_body = |key: &str| body(&format!(r#""key":{key},"#));
    type Headers<'a> = &'a [(&'a str, &'a str)];
    let cases: [(&str, Headers<'_>, String, &str); 13] = [
        ("no key", &[json], body(""), "key_missing"),
        ("an empty field", &[json], in_body(r#""""#), "key_empty"),
        (
            "an empty header",
            &[json, ("idempotency-key", "")],
            body(""),
            "key_empty",
        ),
        (
            "a field of 256 characters",
            &[json],
            in_body(&format!("{long:?}")),
            "key_too_long",
        ),
        (
            "a header of 256 characters",
            &[json, ("idempotency-key", &long)],
            body(""),
            "key_too_long",
        ),
        ("a non-ASCII field", &[json], in_body(r#""clé""#), "key_characters"),
        (
            "a non-ASCII header",
            &[json, ("idempotency-key", "clé")],
            body(""),
            "key_characters",
        ),
        ("a space", &[json], in_body(r#""a b""#), "key_characters"),
        ("a NUL", &[json], in_body(r#""a\u0000b""#), "key_characters"),
        ("a number", &[json], in_body("7"), "body_invalid"),
        (
            "header and body disagree",
            &[json, ("idempotency-key", "a")],
            in_body(r#""b""#),
            "key_conflict",
        ),
        ("two keys", &[json], body(r#""key":"a","key":"a","#), "body_invalid"),
        (
            "two headers",
            &[json, ("idempotency-key", "a"), ("idempotency-key", "a")],
            body(""),
            "header_repeated",
        ),
    ];
    for (case, headers, body, code) in cases {
        let answer = client.post_bytes("/transfers", headers, body.as_bytes()).await;
        assert_eq!(answer.verdict(), (400, code.to_owned()), "{case}");
    }
    let array = format!("[{}]", transfer("a", "bank", "till", "5"));
    let answer = client
        .post_bytes("/intents", &[json, ("idempotency-key", "a")], array.as_bytes())
        .await;
    assert_eq!(answer.verdict(), (400, "key_for_many".to_owned()));
    assert_eq!((house.stubs().await, house.transfers().await), (stubs, 0));
    assert!(client.is_alive().await);
}

#[tokio::test]
async fn case_4_keys_that_look_different_may_be_the_same_and_the_other_way_round() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    let json_type = ("content-type", "application/json");
    let body = |key: &str| json!({ "key": key, "from": "bank", "to": "till", "amount": "1" });
    let lower = "01890a5d-ac96-474b-bcce-b302099a8057";
    let upper = lower.to_uppercase();

    // A UUID in another spelling is the same key, in the body, the header and the path.
    let first = client.post("/transfers", &body(lower)).await;
    assert_eq!(first.status, 201);
    let again = client.post("/transfers", &body(&upper)).await;
    assert_eq!(
        (again.status, again.replayed(), again.text()),
        (200, true, first.text())
    );
    let header = [json_type, ("idempotency-key", upper.as_str())];
    let both = client
        .post_bytes("/transfers", &header, body(lower).to_string().as_bytes())
        .await;
    assert_eq!((both.status, both.replayed()), (200, true), "header and body agree");
    assert_eq!(client.stub_state(&upper).await, "found");
    // Without hyphens it is a text, and another key.
    assert_eq!(
        client.post("/transfers", &body(&lower.replace('-', ""))).await.status,
        201
    );

    // Sixteen characters, and the UUID of those sixteen bytes.
    let text = "abcdefghijklmnop";
    let uuid = uuid::Uuid::from_bytes(*b"abcdefghijklmnop").to_string();
    assert_eq!(client.post("/transfers", &body(text)).await.status, 201);
    assert_eq!(client.stub_state(&uuid).await, "none");
    assert_eq!(client.post("/transfers", &body(&uuid)).await.status, 201);

    // Text is taken as it is: case counts, and so do quotes.
    for key in ["Key", "key", "\"key\"", &"x".repeat(255)] {
        assert_eq!(client.post("/transfers", &body(key)).await.status, 201, "{key}");
    }
    let quoted = [json_type, ("idempotency-key", "\"key\"")];
    let plain = json!({ "from": "bank", "to": "till", "amount": "1" }).to_string();
    let answer = client.post_bytes("/transfers", &quoted, plain.as_bytes()).await;
    assert_eq!((answer.status, answer.replayed()), (200, true));
    assert_eq!(client.account("till", "posted").await, "8.00");
}
