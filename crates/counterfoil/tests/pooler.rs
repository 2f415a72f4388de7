//! Case 12: behind PgBouncer in transaction mode, where sessions are everybody's.

use counterfoil_pg::{Client as Session, Role, Tls, connect_admin};
use counterfoil_test::Server;
use serde_json::json;

use crate::harness::{House, Up, data, fresh, fund, intent, open_books, transfer};

const TRANSACTION: [&str; 2] = ["--pooler", "transaction"];

#[tokio::test]
async fn case_12_everything_works_behind_pgbouncer_and_no_statement_is_ever_named() {
    let house = House::new(Server::PgBouncer).await;
    let proxy = house.test.proxy().await;
    let home = house.home_behind(&proxy);
    let up = Up::start(&home, &TRANSACTION).await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till", "shop"]).await;
    fund(&mut client, "till", "100").await;
    for _ in 0..20 {
        let array: Vec<_> = (0..10).map(|_| transfer(&fresh(), "till", "shop", "0.10")).collect();
        let items = client.post("/intents", &json!(array)).await.items();
        assert!(items.iter().all(|item| item["status"] == 201), "{items:?}");
    }
    let hold = client
        .post("/holds", &json!({ "key": "hold", "account": "till", "amount": "5" }))
        .await
        .json();
    let hold = hold["result"]["hold"].as_str().unwrap().to_owned();
    let capture = json!({ "key": fresh(), "to": "shop", "amount": "2" });
    let captured = client.post(&format!("/holds/{hold}/capture"), &capture).await.json();
    let id = captured["result"]["transfer"].as_str().unwrap().to_owned();
    for path in [
        "/accounts".to_owned(),
        "/accounts/till".to_owned(),
        "/accounts/till/entries?order=newest".to_owned(),
        "/accounts/till/holds".to_owned(),
        format!("/holds/{hold}"),
        format!("/transfers/{id}"),
        "/stubs/hold".to_owned(),
        "/accounts/till?as_of=2026-01-01T00:00:00Z".to_owned(),
        "/accounts/till?effective_as_of=2026-01-01T00:00:00Z".to_owned(),
    ] {
        assert_eq!(client.get(&path).await.status, 200, "{path}");
    }
    for path in ["/v1/tenants", "/readyz", "/metrics", "/"] {
        assert_eq!(client.send("GET", path, &[], b"").await.unwrap().status, 200, "{path}");
    }
    // Commands go the same way.
    let tenant = house.tenant.to_string();
    let journal = data("journal.csv");
    home.write(
        "few.csv",
        &std::fs::read_to_string(journal)
            .unwrap()
            .lines()
            .take(300)
            .fold(String::new(), |a, b| a + b + "\n"),
    );
    let few = home.dir.join("few.csv").display().to_string();
    for args in [
        &["tenant", "create", "two"][..],
        &["tenant", "list"],
        &["key", "create", "--tenant", &tenant],
        &["key", "list"],
        &["stub", "hold", "--tenant", &tenant],
        &["accounts", "--tenant", &tenant],
        &["check"],
    ] {
        home.ok(&[args, &TRANSACTION].concat()).await;
    }
    let ended = home
        .run(&[&["import", "journal", &few, "--tenant", &tenant], &TRANSACTION[..]].concat())
        .await;
    // The last transfer of the file may be cut in two.
    assert!(
        matches!(ended.code, Some(0 | 1)) && ended.stdout.contains("imported"),
        "{ended:?}"
    );
    house.check().await;
    up.stop().await;
    let seen = proxy.seen();
    assert_eq!(seen.named_parses, 0);
    assert!(seen.parses > 300 && seen.commits > 20, "{seen:?}");
}

/// Somebody else's session at the same PgBouncer, who sets something for good.
async fn leave_behind(house: &House, role: Role, setting: &str, value: &str) -> Session {
    let session = connect_admin(&house.test.settings.config(role), &Tls::default())
        .await
        .unwrap();
    run(&session, &format!("SET {setting} = '{value}'")).await;
    session
}

#[allow(clippy::disallowed_methods, reason = "from outside")]
async fn run(session: &Session, sql: &str) {
    session
        .batch_execute(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
}

#[tokio::test]
async fn case_12_a_scope_that_was_left_behind_in_a_session_is_refused_and_nothing_leaks() {
    let house = House::new(Server::PgBouncer).await;
    let up = Up::start(&house.another_home(), &TRANSACTION).await;
    let (other, _) = house.another_tenant("two").await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    open_books(&mut up.client(other, &house.operator), &["secret"]).await;
    let stubs = house.stubs().await;
    assert_eq!(client.get("/accounts/till").await.status, 200);

    // A reader's session, with the other tenant's scope in it. Refusing it in the middle of a
    // transaction makes PgBouncer close it, so that whoever comes next has another.
    for (path, next) in [
        ("/accounts", 200),
        ("/accounts/till", 200),
        ("/accounts/secret", 404),
        ("/stubs/k", 200),
    ] {
        let _session = leave_behind(&house, Role::App, "counterfoil.tenant", &other.to_string()).await;
        let refused = client.get(path).await;
        assert_eq!(refused.verdict(), (500, "internal".to_owned()), "{path}");
        let log = up.log();
        let line = log
            .lines()
            .find(|line| line.contains(refused.json()["id"].as_str().unwrap()))
            .unwrap();
        assert!(
            line.contains("counterfoil.tenant = ") && line.contains("RECONNECT"),
            "it says what to do: {line}"
        );
        let answer = client.get(path).await;
        assert_eq!(answer.status, next, "{path}");
        assert!(!answer.text().contains("secret"), "{path}: {}", answer.text());
    }

    // A lane's, with everybody's.
    let both = format!("{{{},{other}}}", house.tenant);
    let _session = leave_behind(&house, Role::Lane, "counterfoil.tenants", &both).await;
    let body = json!({ "key": "k", "from": "bank", "to": "till", "amount": "1" });
    // The connection is refused, and the lane begins again on another.
    let landed = client.post("/transfers", &body).await;
    assert_eq!((landed.status, landed.replayed()), (201, false));
    assert_eq!((house.stubs().await, house.transfers().await), (stubs + 1, 1));
    let log = up.log();
    assert!(
        log.lines()
            .any(|line| line.contains("counterfoil.tenants = ") && line.contains("RECONNECT")),
        "it says what to do: {log}"
    );
    let array = json!([intent(&fresh(), "ledger.close", &json!({ "account": "secret" }))]);
    assert_eq!(
        client.post("/intents", &array).await.items()[0]["code"],
        "account_unknown"
    );
    house.check().await;
}
