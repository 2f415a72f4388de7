//! Writes: what is handed over, and the shapes of answers. With stubs they are told in
//! `src/answer.rs`.

use counterfoil_intent::Answer;
use std::time::Duration;

use crate::engine::Client;

const INTENTS: &str = "/v1/tenants/7/intents";

#[tokio::test]
async fn an_array_is_answered_by_an_array_in_order() {
    let client = Client::new();
    let body = r#"[
        {"key":"a","kind":"ledger.transfer","body":{}},
        {"kind":"ledger.transfer","body":{}},
        {"key":"c","all":[{"kind":"ledger.open","body":{}},{"kind":"ledger.open","body":7}]},
        {"key":"d","kind":"ledger.hold","body":{}},
        5
    ]"#;
    let got = client.post(INTENTS).send(body).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), "application/json");
    let items = got.json();
    let codes: Vec<_> = items
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["busy", "key_missing", "body_invalid", "busy", "body_invalid"]);
    assert_eq!(items[2]["field"], "all[1].body");
    assert_eq!(items[3]["key"], "d");
    assert_eq!(items[0]["retry_after"], 1);
    for item in items.as_array().unwrap() {
        assert_eq!(item["replayed"], false);
        assert!(item["status"].is_u64());
    }
    assert_eq!(client.taken(), ["a", "d"]);
}

#[tokio::test]
async fn lines_are_answered_by_lines() {
    let client = Client::new();
    let ask = || {
        client
            .post(INTENTS)
            .instead("content-type", "application/x-ndjson; charset=utf-8")
    };
    let body = "{\"key\":\"a\",\"kind\":\"ledger.transfer\",\"body\":{}}\n\n{\"key\"\n\
                {\"key\":\"b\",\"kind\":\"ledger.transfer\",\"body\":{}}\n";
    let got = ask().send(body).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.header("content-type"), "application/x-ndjson");
    assert!(got.text.ends_with("}\n"));
    let lines: Vec<serde_json::Value> = got
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let codes: Vec<_> = lines.iter().map(|item| item["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["busy", "json_invalid", "busy"]);
    assert_eq!(client.taken(), ["a", "b"]);
    assert_eq!(ask().send("\n").await.text, "");
}

#[tokio::test]
async fn an_empty_array_is_answered_by_one() {
    let client = Client::new();
    let got = client.post(INTENTS).send("[]").await;
    assert_eq!((got.status.as_u16(), got.text.as_str()), (200, "[]"));
}

#[tokio::test]
async fn each_route_of_a_kind_hands_over_its_kind() {
    let client = Client::new();
    let hold = "01890a5d-ac96-774b-bcce-b302099a8057";
    for (i, path) in [
        "assets".to_owned(),
        "accounts".to_owned(),
        "transfers".to_owned(),
        "holds".to_owned(),
        format!("holds/{hold}/capture"),
        format!("holds/{hold}/release"),
        format!("transfers/{hold}/reverse"),
        "accounts/cash%2Ftill/limit".to_owned(),
        "accounts/cash%2Ftill/close".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let key = format!("k{i}");
        let path = format!("/v1/tenants/7/{path}");
        let got = client
            .post(&path)
            .header("idempotency-key", &key)
            .send(r#"{"x":1}"#)
            .await;
        assert_eq!(got.code(), "busy", "{path}");
        assert_eq!(client.taken().last(), Some(&key));
    }
}

#[tokio::test]
async fn path_and_body_must_not_contradict_each_other() {
    let client = Client::new();
    let path = "/v1/tenants/7/accounts/cash%2Ftill/close";
    let got = client.post(path).send(r#"{"key":"k","account":"bank"}"#).await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (400, "path_conflict"));
    assert_eq!(got.json()["field"], "account");
    let got = client.post(path).send(r#"{"key":"k","account":"cash/till"}"#).await;
    assert_eq!(got.code(), "busy");
}

#[tokio::test]
async fn what_the_path_and_the_headers_say_needs_no_body() {
    let client = Client::new();
    let ask = client.post("/v1/tenants/7/accounts/cash/close").without("content-type");
    assert_eq!(ask.header("idempotency-key", "k").empty().await.code(), "busy");
    assert_eq!(client.taken(), ["k"]);
    let ask = client.post("/v1/tenants/7/transfers").without("content-type");
    assert_eq!(ask.header("idempotency-key", "k").empty().await.code(), "json_invalid");
}

#[tokio::test]
async fn waits_are_told_in_whole_seconds_and_unknown_names_the_stub() {
    let client = Client::new();
    let send = || {
        client
            .post("/v1/tenants/7/transfers")
            .header("idempotency-key", "a/b")
            .send("{}")
    };
    client.answer(Answer::TooMany {
        retry_after: Duration::from_millis(1_001),
    });
    let got = send().await;
    assert_eq!(
        (got.status.as_u16(), got.code().as_str(), got.header("retry-after")),
        (429, "too_many", "2")
    );
    client.answer(Answer::Unknown);
    let got = send().await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (504, "outcome_unknown"));
    assert_eq!(got.json()["stub"], "/v1/tenants/7/stubs/a%2Fb");
    assert_eq!(got.header("link"), "</v1/tenants/7/stubs/a%2Fb>; rel=\"status\"");
    let stub = client.get("/v1/tenants/7/stubs/a%2Fb").empty().await;
    assert_eq!(stub.json()["key"], "a/b");
}
