//! Reads.

use crate::engine::{Client, OPERATOR_KEY};

#[tokio::test]
async fn a_stub_is_found_waiting_or_none() {
    let client = Client::new();
    let got = client.get("/v1/tenants/7/stubs/waiting").empty().await;
    assert_eq!(
        (got.status.as_u16(), got.json()["state"].as_str()),
        (200, Some("in_flight"))
    );
    let got = client
        .get("/v1/tenants/7/stubs/A8098C1A-F86E-11DA-BD1A-00112444BE1E")
        .empty()
        .await;
    assert_eq!(got.json()["state"], "none");
    assert_eq!(got.json()["key"], "a8098c1a-f86e-11da-bd1a-00112444be1e");
    assert_eq!(got.json()["as_of"], "2026-03-01T12:00:00.000000Z");
}

#[tokio::test]
async fn a_database_that_is_away_is_503_and_a_fault_of_ours_500_both_with_an_id() {
    let client = Client::new();
    let got = client.get("/v1/tenants/7/stubs/lost").empty().await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (503, "unavailable"));
    assert_eq!(got.json()["id"].as_str().unwrap().len(), 36);
    let got = client.get("/v1/tenants/7/stubs/broken").empty().await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (500, "internal"));
    assert!(
        !got.text.contains("stub_get"),
        "what broke is for the log: {}",
        got.text
    );
}

#[tokio::test]
async fn tenants_are_paged_by_an_opaque_cursor() {
    let client = Client::new();
    let bearer = format!("Bearer {OPERATOR_KEY}");
    let list = |query: String| {
        client
            .get(&format!("/v1/tenants{query}"))
            .instead("authorization", &bearer)
            .empty()
    };
    let first = list("?limit=2".to_owned()).await.json();
    assert_eq!(first["tenants"].as_array().unwrap().len(), 2);
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = list(format!("?limit=2&cursor={cursor}")).await.json();
    assert_eq!(second["tenants"][0]["id"], 3);
    assert!(second["next_cursor"].is_null());
    assert_eq!(list("?cursor=MTp4".to_owned()).await.code(), "query_cursor");
    assert_eq!(list("?limit=1001".to_owned()).await.code(), "query_limit");
}

#[tokio::test]
async fn a_tenant_is_made_by_an_operator() {
    let client = Client::new();
    let bearer = format!("Bearer {OPERATOR_KEY}");
    let ask = || client.post("/v1/tenants").instead("authorization", &bearer);
    let got = ask()
        .send(r#"{"name":"Kiosk","zone":"Asia/Shanghai","rounding":"half_even"}"#)
        .await;
    assert_eq!(got.status, 201);
    insta::assert_snapshot!(got.text, @r#"{"id":9,"name":"Tenant 9","zone":"UTC","collation":"C","rounding":"half_up","created_at":"2026-03-01T12:00:00.000000Z"}"#);
    for (body, code) in [
        (r#"{"name":""}"#, "tenant_invalid"),
        (r#"{"name":"x","zone":"Mars/Olympus"}"#, "tenant_invalid"),
        (r#"{"name":"x","rounding":"sideways"}"#, "tenant_invalid"),
        (r#"{"name":"x","color":"red"}"#, "body_invalid"),
        (r#"{"name":"x""#, "json_invalid"),
    ] {
        let got = ask().send(body).await;
        assert_eq!((got.status.as_u16(), got.code().as_str()), (400, code), "{body}");
    }
    let got = ask().header("idempotency-key", "k").send(r#"{"name":"x"}"#).await;
    assert_eq!(got.code(), "key_not_taken");
}

#[tokio::test]
async fn readiness_is_asked_once_a_second_however_many_ask() {
    let client = Client::new();
    for _ in 0..50 {
        assert_eq!(client.get("/readyz").without("authorization").empty().await.status, 200);
    }
    assert_eq!(*client.app.engine().asked_ready.lock(), 1);
}

#[tokio::test]
async fn metrics_count_what_was_answered() {
    let client = Client::new();
    client.get("/nowhere").empty().await;
    client.get("/healthz").empty().await;
    let bearer = format!("Bearer {OPERATOR_KEY}");
    let got = client.get("/metrics").instead("authorization", &bearer).empty().await;
    assert_eq!(got.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "counterfoil_http_requests_total{method=\"\",route=\"none\",status=\"404\"} 1",
        "counterfoil_http_requests_total{method=\"GET\",route=\"/healthz\",status=\"200\"} 1",
        "counterfoil_lane_waiting_intents{lane=\"0\"} 0",
    ] {
        assert!(
            got.text.lines().any(|found| found == line),
            "{line} is not in\n{}",
            got.text
        );
    }
}

#[tokio::test]
async fn the_page_for_people_says_how_things_stand() {
    let client = Client::new();
    let bearer = format!("Bearer {OPERATOR_KEY}");
    let got = client.get("/").instead("authorization", &bearer).empty().await;
    assert_eq!(got.header("content-type"), "text/html; charset=utf-8");
    for part in [
        "PostgreSQL 15.18",
        "as this version needs it",
        "counterfoil_lane_waiting_intents",
    ] {
        assert!(got.text.contains(part), "{part} is not in\n{}", got.text);
    }
}
