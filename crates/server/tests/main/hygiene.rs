//! Bad input: a clear error, a server that lives, and nothing handed over.

use counterfoil_server::Limits;

use crate::engine::{Client, Got};

const INTENTS: &str = "/v1/tenants/7/intents";
const GOOD: &str = r#"{"key":"k","kind":"ledger.transfer","body":{}}"#;

/// Checks status and code, and that nothing came through.
#[track_caller]
fn refused(client: &Client, got: &Got, status: u16, code: &str) {
    assert_eq!(
        (got.status.as_u16(), got.code().as_str()),
        (status, code),
        "{}",
        got.text
    );
    assert_eq!(client.taken(), Vec::<String>::new());
}

#[tokio::test]
async fn a_wrong_or_missing_content_type_is_415() {
    let client = Client::new();
    for value in [
        "text/plain",
        "application/xml",
        "application/json; charset=utf-16",
        "multipart/form-data",
    ] {
        let got = client.post(INTENTS).instead("content-type", value).send(GOOD).await;
        refused(&client, &got, 415, "media_type");
    }
    let got = client.post(INTENTS).without("content-type").send(GOOD).await;
    refused(&client, &got, 415, "media_type");
    let got = client.post(INTENTS).header("content-encoding", "gzip").send(GOOD).await;
    refused(&client, &got, 415, "media_type");
    // Lines are for mixed intents; a route of one kind takes one.
    let lines = client
        .post("/v1/tenants/7/transfers")
        .instead("content-type", "application/x-ndjson");
    refused(&client, &lines.send("{}\n{}").await, 415, "media_type");
}

#[tokio::test]
async fn truncated_json_is_400() {
    let client = Client::new();
    for end in 1..GOOD.len() {
        let got = client.post(INTENTS).send(&GOOD[..end]).await;
        refused(&client, &got, 400, "json_invalid");
        let got = client.post(INTENTS).send(format!("[{GOOD},{}", &GOOD[..end])).await;
        refused(&client, &got, 400, "json_invalid");
    }
    refused(&client, &client.post(INTENTS).empty().await, 400, "json_invalid");
    refused(
        &client,
        &client.post(INTENTS).without("content-type").empty().await,
        400,
        "json_invalid",
    );
    refused(
        &client,
        &client.post(INTENTS).send(format!("{GOOD}{GOOD}")).await,
        400,
        "json_invalid",
    );
}

#[tokio::test]
async fn a_byte_order_mark_or_a_nul_before_the_json_is_400() {
    let client = Client::new();
    refused(
        &client,
        &client.post(INTENTS).send(format!("\u{feff}{GOOD}")).await,
        400,
        "json_invalid",
    );
    refused(
        &client,
        &client.post(INTENTS).send(format!("\0{GOOD}")).await,
        400,
        "json_invalid",
    );
}

#[tokio::test]
async fn invalid_utf_8_is_400() {
    let client = Client::new();
    let mut body = GOOD.as_bytes().to_vec();
    body[9] = 0xff;
    let got = client.post(INTENTS).send(body).await;
    refused(&client, &got, 400, "body_encoding");
    assert!(got.json()["detail"].as_str().unwrap().contains("byte 9"));
}

#[tokio::test]
async fn what_is_json_but_no_intent_is_400() {
    let client = Client::new();
    for body in [
        "1",
        "null",
        "\"x\"",
        "{}",
        r#"{"key":"k"}"#,
        r#"{"key":1,"kind":"ledger.transfer","body":{}}"#,
        r#"{"key":"k","kind":"ledger.transfer","body":{},"more":1}"#,
        r#"{"key":"k","kind":"ledger.nothing","body":{}}"#,
        r#"{"key":"k","all":[]}"#,
        r#"{"key":"","kind":"ledger.transfer","body":{}}"#,
        r#"{"key":"a\u0000b","kind":"ledger.transfer","body":{}}"#,
        r#"{"key":"\ud800","kind":"ledger.transfer","body":{}}"#,
        r#"{"key":"k","key":"l","kind":"ledger.transfer","body":{}}"#,
    ] {
        let got = client.post(INTENTS).send(body).await;
        assert_eq!(got.status, 400, "{body}");
        got.code();
    }
    assert!(client.taken().is_empty());
}

#[tokio::test]
async fn more_than_8_mib_are_413() {
    let client = Client::new();
    let body = vec![b' '; (8 << 20) + 1];
    refused(
        &client,
        &client.post(INTENTS).send(body).await,
        413,
        "request_too_large",
    );
    let mut body = GOOD.as_bytes().to_vec();
    body.resize(8 << 20, b' ');
    assert_eq!(client.post(INTENTS).send(body).await.code(), "busy");
}

#[tokio::test]
async fn an_intent_of_more_than_64_kib_is_413_and_spoils_no_other() {
    let client = Client::new();
    let large = format!(
        r#"{{"key":"l","kind":"ledger.transfer","body":{{"x":"{}"}}}}"#,
        "x".repeat(64 << 10)
    );
    refused(
        &client,
        &client.post(INTENTS).send(large.clone()).await,
        413,
        "body_too_large",
    );
    let got = client.post(INTENTS).send(format!("[{large},{GOOD}]")).await;
    assert_eq!(got.status, 200);
    let items = got.json();
    assert_eq!(
        (&items[0]["status"], &items[0]["code"]),
        (&413.into(), &"body_too_large".into())
    );
    assert_eq!(items[1]["code"], "busy");
    assert_eq!(client.taken(), ["k"]);
}

#[tokio::test]
async fn more_than_2000_items_are_413() {
    let client = Client::new();
    let array = format!("[{}]", vec![GOOD; 2_001].join(","));
    refused(&client, &client.post(INTENTS).send(array).await, 413, "too_many_items");
    let lines = client.post(INTENTS).instead("content-type", "application/x-ndjson");
    refused(
        &client,
        &lines.send(vec![GOOD; 2_001].join("\n")).await,
        413,
        "too_many_items",
    );
    let array = format!("[{}]", vec![GOOD; 2_000].join(","));
    let got = client.post(INTENTS).send(array).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.json().as_array().unwrap().len(), 2_000);
}

#[tokio::test]
async fn deep_nesting_is_400_and_overflows_nothing() {
    let client = Client::new();
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let body = format!(r#"{{"key":"k","kind":"ledger.transfer","body":{{"x":{deep}}}}}"#);
    refused(&client, &client.post(INTENTS).send(body).await, 400, "body_invalid");
    let got = client
        .post("/v1/tenants/7/transfers")
        .send(format!(r#"{{"key":"k","x":{deep}}}"#))
        .await;
    refused(&client, &got, 400, "body_invalid");
    let array = client.post(INTENTS).send("[".repeat(4 << 20)).await;
    refused(&client, &array, 400, "json_invalid");
}

#[tokio::test]
async fn two_idempotency_keys_are_400() {
    let client = Client::new();
    let ask = client
        .post("/v1/tenants/7/transfers")
        .header("idempotency-key", "a")
        .header("idempotency-key", "b");
    refused(&client, &ask.send("{}").await, 400, "header_repeated");
}

#[tokio::test]
async fn a_key_must_be_there_and_agree() {
    let client = Client::new();
    let path = "/v1/tenants/7/transfers";
    refused(&client, &client.post(path).send("{}").await, 400, "key_missing");
    let got = client
        .post(path)
        .header("idempotency-key", "a")
        .send(r#"{"key":"b"}"#)
        .await;
    refused(&client, &got, 400, "key_conflict");
    let got = client
        .post(path)
        .header("idempotency-key", &"x".repeat(256))
        .send("{}")
        .await;
    refused(&client, &got, 400, "key_too_long");
    let got = client.post(path).header("idempotency-key", "").send("{}").await;
    refused(&client, &got, 400, "key_empty");
    let got = client.post(path).header("idempotency-key", "clé").send("{}").await;
    refused(&client, &got, 400, "key_characters");
    let same = client
        .post(path)
        .header("idempotency-key", "A8098C1A-F86E-11DA-BD1A-00112444BE1E");
    let got = same.send(r#"{"key":"a8098c1a-f86e-11da-bd1a-00112444be1e"}"#).await;
    assert_eq!(got.code(), "busy");
}

#[tokio::test]
async fn a_key_in_the_headers_is_for_one_intent() {
    let client = Client::new();
    let got = client
        .post(INTENTS)
        .header("idempotency-key", "a")
        .send(format!("[{GOOD}]"))
        .await;
    refused(&client, &got, 400, "key_for_many");
    let lines = client
        .post(INTENTS)
        .instead("content-type", "application/x-ndjson")
        .header("idempotency-key", "a");
    refused(&client, &lines.send(GOOD).await, 400, "key_for_many");
}

#[tokio::test]
async fn a_timeout_that_is_none_is_400() {
    let client = Client::new();
    for value in ["0", "-1", "1.5", "600001", "soon", ""] {
        let got = client
            .post(INTENTS)
            .header("counterfoil-timeout", value)
            .send(GOOD)
            .await;
        refused(&client, &got, 400, "timeout_invalid");
    }
}

#[tokio::test]
async fn unknown_query_parameters_are_400_on_every_route() {
    let client = Client::new();
    for spec in counterfoil_server::ROUTES {
        let path = spec.path.replace("{tenant}", "7").replace(['{', '}'], "");
        let ask = client.ask(spec.method.clone(), &format!("{path}?limits=1"));
        let bearer = format!("Bearer {}", crate::engine::OPERATOR_KEY);
        let got = ask.instead("authorization", &bearer).empty().await;
        refused(&client, &got, 400, "query_unknown");
        assert_eq!(got.json()["field"], "limits");
    }
}

#[tokio::test]
async fn an_address_that_is_no_utf_8_or_has_a_nul_is_400() {
    let client = Client::new();
    let got = client
        .post("/v1/tenants/7/accounts/%ff/close")
        .header("idempotency-key", "k")
        .send("{}")
        .await;
    refused(&client, &got, 400, "url_encoding");
    refused(
        &client,
        &client.get("/v1/tenants/7/stubs/%ff").empty().await,
        400,
        "url_encoding",
    );
    refused(
        &client,
        &client.get("/v1/tenants/7/accounts?prefix=a%00").empty().await,
        400,
        "text_nul",
    );
    refused(
        &client,
        &client.get("/v1/tenants/7/stubs/a%20b").empty().await,
        400,
        "key_characters",
    );
}

#[tokio::test]
async fn a_kind_that_panics_over_a_body_is_500_with_an_id() {
    let client = Client::new();
    let got = client
        .post(INTENTS)
        .send(r#"{"key":"k","kind":"ledger.transfer","body":{"x":"panic"}}"#)
        .await;
    refused(&client, &got, 500, "internal");
    assert_eq!(got.json()["id"].as_str().unwrap().len(), 36);
}

#[tokio::test]
async fn limits_are_settings() {
    let client = Client::with(Limits {
        items: 2,
        request: 100,
        ..Limits::default()
    });
    let got = client.post(INTENTS).send("[1,2,3]").await;
    assert_eq!(got.json()["detail"], "the request has 3 items; 2 is the most");
    let got = client.post(INTENTS).send(vec![b' '; 101]).await;
    refused(&client, &got, 413, "request_too_large");
}
