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
async fn an_account_is_read_as_it_stands_or_as_of_a_time() {
    let client = Client::new();
    let get = async |path: &str| client.get(&format!("/v1/tenants/7/accounts/{path}")).empty().await;
    insta::assert_snapshot!(get("cash%2F1").await.text, @r#"{"account":"cash/1","asset":"EUR","posted":"125.50","held":"20.00","available":"105.50","floor":"0.00","ceiling":null,"version":4,"opened_at":"2026-03-01T12:00:00.250000Z","changed_at":"2026-03-01T12:00:00.250000Z","closed_at":null,"metadata":{"till": 1}}"#);
    insta::assert_snapshot!(get("cash?as_of=2026-03-01T13:00:00%2B01:00").await.text, @r#"{"account":"cash","asset":"EUR","posted":"-0.05","as_of":"2026-03-01T12:00:00.000000Z","opened_at":"2026-03-01T12:00:00.250000Z"}"#);
    insta::assert_snapshot!(get("cash?effective_as_of=2026-03-01T12:00:00.1234567Z").await.text, @r#"{"account":"cash","asset":"EUR","posted":"-0.05","effective_as_of":"2026-03-01T12:00:00.123456Z","opened_at":"2026-03-01T12:00:00.250000Z"}"#);
    for (path, code) in [
        ("nobody", "not_found"),
        ("nobody?as_of=2026-03-01T12:00:00Z", "not_found"),
        ("%20", "not_found"),
        (&"x".repeat(256), "not_found"),
        ("cash?as_of=yesterday", "query_time"),
        (
            "cash?as_of=2026-03-01T12:00:00Z&effective_as_of=2026-03-01T12:00:00Z",
            "query_conflict",
        ),
    ] {
        assert_eq!(get(path).await.code(), code, "{path}");
    }
}

/// Walks a list to its end and gives back what `member` of its rows say.
async fn walk(client: &Client, path: &str, list: &str, member: &str) -> Vec<serde_json::Value> {
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = client.get(&format!("{path}{cursor}")).empty().await.json();
        seen.extend(page[list].as_array().unwrap().iter().map(|row| row[member].clone()));
        let Some(next) = page["next_cursor"].as_str() else {
            return seen;
        };
        cursor = format!("&cursor={next}");
    }
}

#[tokio::test]
async fn lists_are_walked_to_their_end_without_gap_or_repeat() {
    let client = Client::new();
    let all = "/v1/tenants/7/accounts";
    let one = "/v1/tenants/7/accounts/cash%2F1";
    for limit in 1..=5 {
        let codes = walk(
            &client,
            &format!("{all}?limit={limit}&prefix=cash%2F"),
            "accounts",
            "account",
        )
        .await;
        assert_eq!(codes, ["cash/1", "cash/2", "cash/3"]);
        let versions = walk(&client, &format!("{one}/entries?limit={limit}"), "entries", "version").await;
        assert_eq!(versions, [2, 3, 4]);
        let versions = walk(
            &client,
            &format!("{one}/entries?limit={limit}&order=newest"),
            "entries",
            "version",
        )
        .await;
        assert_eq!(versions, [4, 3, 2]);
        let holds = walk(&client, &format!("{one}/holds?limit={limit}"), "holds", "hold").await;
        assert_eq!(holds.len(), 3);
    }
}

#[tokio::test]
async fn a_cursor_of_another_order_or_route_is_none() {
    let client = Client::new();
    let one = "/v1/tenants/7/accounts/cash%2F1";
    let page = client.get(&format!("{one}/entries?limit=1")).empty().await.json();
    let cursor = page["next_cursor"].as_str().unwrap().to_owned();
    for path in ["entries?order=newest&", "holds?"] {
        let got = client.get(&format!("{one}/{path}cursor={cursor}")).empty().await;
        assert_eq!(got.code(), "query_cursor", "{path}");
    }
    assert_eq!(
        client
            .get(&format!("{one}/entries?order=sideways"))
            .empty()
            .await
            .code(),
        "query_order"
    );
    for path in ["entries", "holds"] {
        let got = client
            .get(&format!("/v1/tenants/7/accounts/nobody/{path}"))
            .empty()
            .await;
        assert_eq!(got.code(), "not_found");
    }
}

#[tokio::test]
async fn transfers_and_holds_are_read_by_their_id() {
    let client = Client::new();
    let get = async |path: &str| client.get(&format!("/v1/tenants/7/{path}")).empty().await;
    insta::assert_snapshot!(get("transfers/01890a5d-ac96-774b-bcce-b302099a8057").await.text, @r#"{"transfer":"01890a5d-ac96-774b-bcce-b302099a8057","entries":[{"account":"bank","asset":"EUR","amount":"-1.00","version":2,"posted":"-1.00"},{"account":"cash/1","asset":"EUR","amount":"1.00","version":2,"posted":"1.00"}],"effective_at":"2026-03-01T12:00:00.250000Z","recorded_at":"2026-03-01T12:00:00.250000Z","description":"say \"hi\"","reverses":null,"reversed_by":"00000000-0000-0000-0000-000000000009","captures":null,"metadata":null}"#);
    insta::assert_snapshot!(get("holds/01890A5D-AC96-774B-BCCE-B302099A8057").await.text, @r#"{"hold":"01890a5d-ac96-774b-bcce-b302099a8057","account":"cash/1","asset":"EUR","amount":"20.00","captured":"0.00","state":"active","expires_at":null,"note":null,"recorded_at":"2026-03-01T12:00:00.250000Z","changed_at":"2026-03-01T12:00:00.250000Z"}"#);
    for id in [
        "00000000-0000-0000-0000-000000000000",
        "x",
        "01890a5dac96774bbcceb302099a8057",
        "%00",
    ] {
        assert_eq!(get(&format!("transfers/{id}")).await.code(), "not_found", "{id}");
        assert_eq!(get(&format!("holds/{id}")).await.code(), "not_found", "{id}");
    }
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
        .send(r#"{"key":"k","name":"Kiosk","zone":"Asia/Shanghai","rounding":"half_even"}"#)
        .await;
    assert_eq!((got.status.as_u16(), got.header("idempotency-replayed")), (201, ""));
    let first = got.text.clone();
    insta::assert_snapshot!(got.text, @r#"{"id":9,"name":"Tenant 9","zone":"UTC","collation":"C","rounding":"half_up","created_at":"2026-03-01T12:00:00.000000Z"}"#);
    for (body, code) in [
        (r#"{"key":"k","name":""}"#, "tenant_invalid"),
        (r#"{"key":"k","name":"x","zone":"Mars/Olympus"}"#, "tenant_invalid"),
        (r#"{"key":"k","name":"x","rounding":"sideways"}"#, "tenant_invalid"),
        (r#"{"key":"k","name":"x","color":"red"}"#, "body_invalid"),
        (r#"{"key":"k","name":"x""#, "json_invalid"),
        (r#"{"name":"x"}"#, "key_missing"),
    ] {
        let got = ask().send(body).await;
        assert_eq!((got.status.as_u16(), got.code().as_str()), (400, code), "{body}");
    }
    let with = |key: &str| ask().header("idempotency-key", key);
    let got = with("again").send(r#"{"name":"x"}"#).await;
    assert_eq!((got.status.as_u16(), got.header("idempotency-replayed")), (200, "true"));
    assert_eq!(got.text, first, "letter by letter");
    let got = with("other").send(r#"{"name":"x"}"#).await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (422, "key_reused"));
    assert_eq!(got.json()["field"], "zone");
    let got = with("k").send(r#"{"key":"l","name":"x"}"#).await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (400, "key_conflict"));
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
