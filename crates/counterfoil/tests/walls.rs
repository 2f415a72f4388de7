//! Promise 3 over HTTP, and who is let in; and that a hold ends when its time has passed.

use std::time::{Duration, Instant};

use counterfoil_test::Server;
use serde_json::{Value, json};

use crate::harness::{House, fresh, fund, intent, open_books, transfer, until};

#[tokio::test]
async fn a_key_of_one_tenant_gets_404_for_everything_of_another() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let (mine, my_key) = house.another_tenant("mine").await;
    let (theirs, their_key) = house.another_tenant("theirs").await;
    let mut they = up.client(theirs, &their_key);
    open_books(&mut they, &["till"]).await;
    fund(&mut they, "till", "100").await;
    let moved = json!({ "key": "k", "from": "till", "to": "bank", "amount": "1" });
    let id = they.post("/transfers", &moved).await.json()["result"]["transfer"]
        .as_str()
        .unwrap()
        .to_owned();
    let held = json!({ "key": "h", "account": "till", "amount": "2" });
    let hold = they.post("/holds", &held).await.json()["result"]["hold"]
        .as_str()
        .unwrap()
        .to_owned();
    let stubs = house.stubs().await;

    // At their address, with my key: whether it is there or not.
    let mut trespasser = up.client(theirs, &my_key);
    for path in [
        "/accounts",
        "/accounts/till",
        "/accounts/none",
        "/accounts/till/entries",
        "/accounts/till/holds",
        "/stubs/k",
        "/stubs/none",
        &format!("/transfers/{id}"),
        &format!("/holds/{hold}"),
    ] {
        assert_eq!(
            trespasser.get(path).await.verdict(),
            (404, "not_found".to_owned()),
            "{path}"
        );
    }
    let body = json!({ "key": "mine", "from": "till", "to": "bank", "amount": "1" });
    for (path, body) in [
        ("/transfers", body.clone()),
        ("/intents", transfer("mine", "till", "bank", "1")),
        ("/intents", json!([transfer("mine", "till", "bank", "1")])),
        ("/assets", json!({ "key": "mine", "code": "EUR", "scale": 2 })),
        ("/accounts", json!({ "key": "mine", "account": "x", "asset": "USD" })),
        ("/holds", json!({ "key": "mine", "account": "till", "amount": "1" })),
        ("/accounts/till/close", json!({ "key": "mine" })),
        ("/accounts/till/limit", json!({ "key": "mine", "floor": null })),
        (&format!("/transfers/{id}/reverse"), json!({ "key": "mine" })),
        (
            &format!("/holds/{hold}/capture"),
            json!({ "key": "mine", "to": "bank" }),
        ),
        (&format!("/holds/{hold}/release"), json!({ "key": "mine" })),
    ] {
        assert_eq!(
            trespasser.post(path, &body).await.verdict(),
            (404, "not_found".to_owned()),
            "{path}"
        );
    }
    for tenant in ["999999", "-1", "0", "01", "9223372036854775808", "x", "%31"] {
        let path = format!("/v1/tenants/{tenant}/accounts");
        let answer = trespasser.send("GET", &path, &[], b"").await.unwrap();
        assert_eq!(answer.status, 404, "{path}");
    }
    assert_eq!(house.stubs().await, stubs);

    // At my own address their things are not there, and their names are free.
    let mut me = up.client(mine, &my_key);
    for path in [&format!("/transfers/{id}"), &format!("/holds/{hold}"), "/accounts/till"] {
        assert_eq!(me.get(path).await.verdict(), (404, "not_found".to_owned()), "{path}");
    }
    for (kind, body, code) in [
        ("ledger.reverse", json!({ "transfer": id }), "transfer_unknown"),
        ("ledger.reverse", json!({ "transfer_key": "k" }), "transfer_unknown"),
        ("ledger.capture", json!({ "hold": hold, "to": "bank" }), "hold_unknown"),
        ("ledger.release", json!({ "hold_key": "h" }), "hold_unknown"),
        (
            "ledger.transfer",
            json!({ "from": "till", "to": "bank", "amount": "1" }),
            "account_unknown",
        ),
        (
            "ledger.open",
            json!({ "account": "till", "asset": "USD" }),
            "asset_unknown",
        ),
    ] {
        let answer = me.post("/intents", &intent(&fresh(), kind, &body)).await;
        assert_eq!(answer.verdict(), (409, code.to_owned()), "{kind}");
    }
    assert_eq!(me.stub_state("k").await, "none");
    open_books(&mut me, &["till"]).await;
    let same_key = json!({ "key": "k", "from": "bank", "to": "till", "amount": "7" });
    let answer = me.post("/transfers", &same_key).await;
    assert_eq!(
        (answer.status, answer.replayed()),
        (201, false),
        "keys are each tenant's own"
    );
    assert_eq!(me.account("till", "posted").await, "7.00");
    assert_eq!(they.account("till", "posted").await, "99.00");
    assert_eq!(
        me.get("/accounts").await.json()["accounts"].as_array().unwrap().len(),
        2
    );

    // A tenant is no operator, and nobody is nobody.
    for path in ["/v1/tenants", "/metrics", "/"] {
        let answer = me.send("GET", path, &[], b"").await.unwrap();
        assert_eq!(answer.verdict(), (403, "operators_only".to_owned()), "{path}");
    }
    me.key.clear();
    for path in [
        "/v1/tenants",
        "/v1/tenants/1/accounts",
        "/metrics",
        "/",
        "/openapi.json",
    ] {
        assert_eq!(me.send("GET", path, &[], b"").await.unwrap().status, 401, "{path}");
    }
    for path in ["/healthz", "/readyz", "/codes"] {
        assert_eq!(me.send("GET", path, &[], b"").await.unwrap().status, 200, "{path}");
    }
    house.check().await;
}

#[tokio::test]
async fn a_revoked_key_stops_within_two_seconds_on_every_server() {
    let house = House::new(Server::Pg15).await;
    let servers = house.two().await;
    let tenant = house.tenant.to_string();
    let made = house
        .home
        .ok(&[
            "key", "create", "--tenant", &tenant, "--label", "shop", "--format", "json",
        ])
        .await;
    let made: Value = made.parse().unwrap();
    let (id, key) = (made["id"].to_string(), made["key"].as_str().unwrap());
    let mut clients = servers.each_ref().map(|up| up.client(house.tenant, key));
    for client in &mut clients {
        // Known well: asked for over and over.
        for _ in 0..10 {
            assert_eq!(client.get("/accounts").await.status, 200);
        }
    }
    house.home.ok(&["key", "revoke", &id]).await;
    let revoked = Instant::now();
    for client in &clients {
        until("the key is refused", async || {
            client.clone().get("/accounts").await.status == 401
        })
        .await;
    }
    let took = revoked.elapsed();
    assert!(took < Duration::from_millis(2_200), "{took:?}");
    let list = house.home.ok(&["key", "list"]).await;
    let line = list.lines().find(|line| line.starts_with(&format!("{id}\t"))).unwrap();
    assert!(line.contains("revoked") && line.contains("shop"), "{line}");
    assert!(!list.contains(key), "a key is shown once");
    house
        .home
        .run(&["key", "revoke", "999999"])
        .await
        .could_not_run(&["no key 999999", "key list"]);
}

#[tokio::test]
async fn a_hold_ends_at_the_moment_its_time_has_passed() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    fund(&mut client, "till", "100").await;
    for round in 0..3 {
        let key = format!("hold-{round}");
        let body = json!({ "key": key, "account": "till", "amount": "100", "expires_in": 1 });
        let held = client.post("/holds", &body).await;
        assert_eq!(held.status, 201, "{}", held.text());
        let all = json!({ "key": fresh(), "from": "till", "to": "bank", "amount": "100" });
        assert_eq!(
            client.post("/transfers", &all).await.verdict(),
            (409, "floor_crossed".to_owned())
        );
        assert_eq!(client.account("till", "available").await, "0.00");
        // By the database's clock, to the moment.
        let expires_at = held.json()["result"]["expires_at"].as_str().unwrap().to_owned();
        house
            .sql(&format!(
                "SELECT pg_sleep(extract(epoch FROM '{expires_at}'::timestamptz - clock_timestamp()))"
            ))
            .await;
        let all = json!({ "key": fresh(), "from": "till", "to": "bank", "amount": "100" });
        let answer = client.post("/transfers", &all).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let capture = intent(&fresh(), "ledger.capture", &json!({ "hold_key": key, "to": "bank" }));
        assert_eq!(
            client.post("/intents", &capture).await.verdict(),
            (409, "hold_expired".to_owned())
        );
        fund(&mut client, "till", "100").await;
        assert_eq!(client.account("till", "available").await, "100.00");
    }
    // The worker tidies up behind.
    let active = "SELECT count(*) FROM counterfoil.ledger_hold WHERE state = 'active'";
    until("the worker has been there", async || house.number(active).await == 0).await;
    assert_eq!(client.account("till", "held").await, "0.00");
    let replayed = json!({ "key": "hold-0", "account": "till", "amount": "100", "expires_in": 1 });
    let again = client.post("/holds", &replayed).await;
    assert_eq!((again.status, again.replayed()), (200, true));
    house.check().await;
}
