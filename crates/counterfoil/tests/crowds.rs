//! Cases 7, 9 and 10: who is in whose way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use counterfoil_pg::TenantId;
use counterfoil_test::Server;
use serde_json::{Value, json};
use tokio::sync::{Barrier, Semaphore};
use tokio::task::JoinSet;

use crate::client::Client;
use crate::harness::{House, Up, fresh, intent, open_books, transfer, until};

const SECOND: Duration = Duration::from_secs(1);

/// A foreign session takes the row of one account.
async fn hold_account(house: &House, tenant: TenantId) {
    let sql = format!(
        "BEGIN; SELECT FROM counterfoil.ledger_balance b JOIN counterfoil.ledger_account a
         ON (a.tenant_id, a.id) = (b.tenant_id, b.account_id)
         WHERE a.tenant_id = {tenant} AND a.code = 'till' FOR UPDATE OF b"
    );
    house.sql(&sql).await;
}

/// Tenants set aside so far, of one lane.
async fn aside(client: &mut Client) -> u64 {
    let text = client.send("GET", "/metrics", &[], b"").await.unwrap();
    let lines = text
        .text()
        .lines()
        .filter(|line| line.starts_with("counterfoil_lane_detours_total{"));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_7_a_foreign_lock_on_one_account_holds_up_its_tenant_only_and_in_order() {
    let house = House::new(Server::Pg18).await;
    // One lane, so that all tenants share it.
    let up = Up::start(&house.another_home(), &["--lanes", "1"]).await;
    let free = house.test.tenant("two").await;
    let (mut held_client, mut free_client) = (house.client(&up), up.client(free, &house.operator));
    open_books(&mut held_client, &["till", "shop"]).await;
    open_books(&mut free_client, &["till"]).await;
    hold_account(&house, house.tenant).await;

    // Of the held tenant, in order: what needs the account, and what does not.
    let landed = Arc::new(AtomicUsize::new(0));
    let mut waiting = JoinSet::new();
    for n in 0..10 {
        let mut client = held_client.clone();
        let to = if n % 2 == 0 { "till" } else { "shop" };
        let body = json!({ "key": format!("held-{n}"), "from": "bank", "to": to, "amount": "1" });
        let landed = Arc::clone(&landed);
        waiting.spawn(async move {
            let answer = client.post("/transfers", &body).await;
            landed.fetch_add(1, Ordering::Relaxed);
            (n, answer)
        });
        // The next is sent when this one is in the server.
        let key = format!("held-{n}");
        until("it is in flight", async || {
            held_client.clone().stub_state(&key).await == "in_flight"
        })
        .await;
    }
    // The first has waited for the lock in the lane, for as long as a lane waits.
    until("the tenant is put aside", async || {
        aside(&mut held_client.clone()).await > 0
    })
    .await;
    for _ in 0..50 {
        let start = Instant::now();
        let body = json!({ "key": fresh(), "from": "bank", "to": "till", "amount": "1" });
        assert_eq!(free_client.post("/transfers", &body).await.status, 201);
        assert!(start.elapsed() < SECOND, "it waited for the foreign lock");
        // Reads of the held tenant wait for nobody either.
        let start = Instant::now();
        assert_eq!(held_client.account("till", "posted").await, "0.00");
        assert!(start.elapsed() < SECOND, "a read waited for the foreign lock");
    }
    assert_eq!(
        landed.load(Ordering::Relaxed),
        0,
        "nothing of the tenant overtakes what waits"
    );
    house.sql("COMMIT").await;
    for (n, answer) in waiting.join_all().await {
        assert_eq!(answer.status, 201, "{n}: {}", answer.text());
    }
    // Versions of the account that all of them share tell in which order they landed.
    let entries = held_client.get("/accounts/bank/entries").await.json();
    let transfers: Vec<Value> = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["transfer"].clone())
        .collect();
    for (n, transfer) in transfers.iter().enumerate() {
        let stub = held_client.get(&format!("/stubs/held-{n}")).await.json();
        assert_eq!(stub["result"]["transfer"], *transfer, "number {n}");
    }
    house.check().await;
}

#[tokio::test]
async fn case_7_a_foreign_lock_held_for_too_long_is_503_busy_without_a_stub() {
    let house = House::new(Server::Pg15).await;
    let home = house.another_home();
    home.write("counterfoil.toml", "[lanes]\nlock_timeout_ms = 300\n");
    let up = Up::start(&home, &[]).await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    let stubs = house.stubs().await;
    hold_account(&house, house.tenant).await;
    let array = json!([transfer("a", "bank", "till", "1"), transfer("b", "bank", "till", "1")]);
    let body = json!({ "key": "c", "from": "bank", "to": "till", "amount": "1" });
    let start = Instant::now();
    let busy = client.post("/transfers", &body).await;
    assert_eq!(busy.verdict(), (503, "busy".to_owned()));
    assert_eq!(busy.header("retry-after"), Some("1"));
    assert!(start.elapsed() >= Duration::from_millis(300));
    for item in client.post("/intents", &array).await.items() {
        assert_eq!(
            (&item["status"], &item["code"], &item["retry_after"]),
            (&json!(503), &json!("busy"), &json!(1))
        );
    }
    for key in ["a", "b", "c"] {
        assert_eq!(client.stub_state(key).await, "none");
    }
    assert_eq!((house.stubs().await, house.transfers().await), (stubs, 0));
    house.sql("ROLLBACK").await;
    assert_eq!(client.post("/transfers", &body).await.status, 201, "the same key");
    assert!(
        client
            .post("/intents", &array)
            .await
            .items()
            .iter()
            .all(|item| item["status"] == 201)
    );
    assert_eq!(client.account("till", "posted").await, "3.00");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_7_two_servers_and_a_foreign_session_in_opposite_orders_show_no_deadlock_to_any_caller() {
    let house = House::new(Server::Pg18).await;
    let servers = house.two().await;
    open_books(&mut house.client(&servers[0]), &["a", "b", "c"]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let foreign = {
        let (client, stop, tenant) = (house.test.admin().await, Arc::clone(&stop), house.tenant);
        tokio::spawn(async move { foreign_session(client, tenant, &stop).await })
    };
    let mut callers = JoinSet::new();
    for caller in 0..8 {
        let mut client = house.client(&servers[caller % 2]);
        callers.spawn(async move {
            for n in 0..25 {
                let mut order = ["a", "b", "c"];
                order.rotate_left((caller + n) % 3);
                let array: Vec<_> = order.iter().map(|to| transfer(&fresh(), "bank", to, "1")).collect();
                for item in client.post("/intents", &json!(array)).await.items() {
                    assert_eq!(item["status"], 201, "{item}");
                }
            }
        });
    }
    callers.join_all().await;
    stop.store(true, Ordering::Relaxed);
    let rounds = foreign.await.unwrap();
    assert!(rounds > 10, "{rounds} rounds are no contest");
    assert_eq!(house.transfers().await, 8 * 25 * 3);
    house.check().await;
}

/// Takes the same rows the other way round, again and again. It may be the victim itself.
#[allow(clippy::disallowed_methods, reason = "from outside")]
async fn foreign_session(client: counterfoil_pg::Client, tenant: TenantId, stop: &AtomicBool) -> u32 {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut sql = "BEGIN;".to_owned();
        for name in ["c", "b", "a", "bank"] {
            sql += &format!(
                "UPDATE counterfoil.ledger_balance b SET changed_at = b.changed_at FROM counterfoil.ledger_account a
                 WHERE (a.tenant_id, a.id) = (b.tenant_id, b.account_id) AND a.tenant_id = {tenant} AND a.code = '{name}';"
            );
        }
        sql += "COMMIT";
        if client.batch_execute(&sql).await.is_err() {
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        rounds += 1;
    }
    rounds
}

/// A giant keeps four arrays of two thousand on their way.
fn giant(client: &Client, stop: &Arc<AtomicBool>) -> JoinSet<(u64, u64)> {
    let mut giants = JoinSet::new();
    for _ in 0..4 {
        let (mut client, stop) = (client.clone(), Arc::clone(stop));
        giants.spawn(async move {
            let (mut landed, mut turned_away) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let array: Vec<_> = (0..2_000).map(|_| transfer(&fresh(), "bank", "till", "1")).collect();
                for item in client.post("/intents", &Value::Array(array)).await.items() {
                    match item["status"].as_u64().unwrap() {
                        201 => landed += 1,
                        429 => {
                            assert_eq!((&item["code"], &item["retry_after"]), (&json!("too_many"), &json!(1)));
                            turned_away += 1;
                        }
                        other => panic!("{other}: {item}"),
                    }
                }
            }
            (landed, turned_away)
        });
    }
    giants
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_9_a_giant_is_turned_away_beyond_its_bound_and_a_thousand_tenants_answer_within_a_second() {
    let house = House::new(Server::Pg18).await;
    let up = Up::start(&house.another_home(), &["--lanes", "1"]).await;
    let mut client = house.client(&up);
    open_books(&mut client, &["till"]).await;
    house
        .sql(
            "INSERT INTO counterfoil.tenant (tenant_id, name, created_at) OVERRIDING SYSTEM VALUE
             SELECT id, 'small', now() FROM generate_series(1000001, 1001000) AS id",
        )
        .await;
    let stop = Arc::new(AtomicBool::new(false));
    let giants = giant(&client, &stop);
    let version = async |client: &Client| client.clone().account("till", "version").await.as_i64().unwrap();
    until("the giant is at work", async || version(&client).await > 1).await;
    // Small ones, so many at a time; each has a connection of its own, and one thing to say.
    let room = Arc::new(Semaphore::new(50));
    let mut small = JoinSet::new();
    for i in 0..1_000 {
        let mut client = up.client(TenantId(1_000_001 + i), &house.operator);
        let room = Arc::clone(&room);
        small.spawn(async move {
            let _place = room.acquire_owned().await.unwrap();
            let start = Instant::now();
            let answer = client
                .post("/assets", &json!({ "key": "k", "code": "USD", "scale": 2 }))
                .await;
            assert_eq!(answer.status, 201, "{}", answer.text());
            start.elapsed()
        });
    }
    let mut times = small.join_all().await;
    stop.store(true, Ordering::Relaxed);
    let (landed, turned_away) = giants
        .join_all()
        .await
        .into_iter()
        .fold((0, 0), |(l, t), (landed, away)| (l + landed, t + away));
    times.sort_unstable();
    println!(
        "giant: {landed} landed, {turned_away} turned away; small: median {:?}, slowest {:?}",
        times[500], times[999]
    );
    assert!(
        landed > 0 && turned_away > 0,
        "{landed} landed, {turned_away} turned away"
    );
    assert!(times[999] < SECOND, "{:?}", times[999]);
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_10_the_first_debits_of_an_account_from_sixty_four_callers_over_two_servers_never_overspend() {
    let house = House::new(Server::Pg15).await;
    let servers = house.two().await;
    open_books(&mut house.client(&servers[0]), &["shop"]).await;
    let barrier = Arc::new(Barrier::new(64));
    let mut callers = JoinSet::new();
    for caller in 0..64 {
        let client = house.client(&servers[caller % 2]);
        let barrier = Arc::clone(&barrier);
        callers.spawn(async move {
            let mut client = client.ready().await;
            let mut statuses = Vec::new();
            for round in 0..8 {
                barrier.wait().await;
                let till = format!("till-{round}");
                // Everybody opens it, as if nobody else did; one brings ten; the others take one each.
                let open = json!({ "account": till, "asset": "USD", "floor": "0" });
                let array = if caller == 0 {
                    json!([
                        intent(&fresh(), "ledger.open", &open),
                        transfer(&fresh(), "bank", &till, "10")
                    ])
                } else {
                    json!([
                        intent(&fresh(), "ledger.open", &open),
                        transfer(&fresh(), &till, "shop", "1")
                    ])
                };
                let items = client.post("/intents", &array).await.items();
                let status = |i: usize| {
                    (
                        items[i]["status"].as_u64().unwrap(),
                        items[i]["code"].as_str().unwrap_or("").to_owned(),
                    )
                };
                statuses.push((caller, round, status(0), status(1)));
            }
            statuses
        });
    }
    let told: Vec<_> = callers.join_all().await.into_iter().flatten().collect();
    let mut client = house.client(&servers[1]);
    for round in 0..8 {
        let of_round: Vec<_> = told.iter().filter(|told| told.1 == round).collect();
        let opened = of_round.iter().filter(|told| told.2.0 == 201).count();
        assert_eq!(opened, 1, "one of them opened it");
        assert!(
            of_round
                .iter()
                .all(|told| told.2.0 == 201 || told.2 == (409, "account_exists".to_owned()))
        );
        let taken = of_round.iter().filter(|told| told.0 != 0 && told.3.0 == 201).count();
        assert!(taken <= 10, "{taken} of ten were taken");
        let others =
            |told: &&&(usize, usize, (u64, String), (u64, String))| told.3 == (409, "floor_crossed".to_owned());
        assert_eq!(of_round.iter().filter(others).count(), 63 - taken);
        let left = client.account(&format!("till-{round}"), "posted").await;
        assert_eq!(left, format!("{}.00", 10 - taken), "round {round}");
    }
    let below = "SELECT count(*) FROM counterfoil.ledger_entry e JOIN counterfoil.ledger_balance b
        USING (tenant_id, account_id) WHERE b.floor IS NOT NULL AND e.posted < b.floor";
    assert_eq!(house.number(below).await, 0, "at no commit");
    house.check().await;
}

/// Open A and B, bring money, transfer, hold, capture a part, release the rest.
fn story(account: impl Fn(&str) -> String, key: impl Fn(&str) -> Value) -> Vec<Value> {
    let (a, b) = (account("a"), account("b"));
    let step = |name: &str, kind: &str, body: Value| {
        let mut step = json!({ "kind": kind, "body": body });
        if !key(name).is_null() {
            step["key"] = key(name);
        }
        step
    };
    vec![
        step("asset", "ledger.asset", json!({ "code": account("USD"), "scale": 2 })),
        step(
            "open-a",
            "ledger.open",
            json!({ "account": a, "asset": account("USD") }),
        ),
        step(
            "open-b",
            "ledger.open",
            json!({ "account": b, "asset": account("USD"), "floor": "0" }),
        ),
        step(
            "transfer",
            "ledger.transfer",
            json!({ "from": a, "to": b, "amount": "10" }),
        ),
        step("hold", "ledger.hold", json!({ "account": b, "amount": "7" })),
    ]
}

#[tokio::test]
async fn case_10_open_open_transfer_hold_capture_in_one_array_works_in_order() {
    let house = House::new(Server::Pg18).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    let mut array = story(str::to_owned, |name| json!(name));
    let capture = |key: &str, amount: &str| {
        intent(
            key,
            "ledger.capture",
            &json!({ "hold_key": "hold", "to": "a", "amount": amount, "final": key == "last" }),
        )
    };
    array.extend([capture("part", "2"), capture("last", "1"), capture("late", "1")]);
    let items = client.post("/intents", &Value::Array(array.clone())).await.items();
    let statuses: Vec<_> = items.iter().map(|item| item["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 201, 201, 201, 201, 201, 201, 409], "{items:?}");
    assert_eq!(
        (&items[5]["result"]["left"], &items[7]["code"]),
        (&json!("5.00"), &json!("hold_captured"))
    );
    let b = client.get("/accounts/b").await.json();
    assert_eq!(
        (&b["posted"], &b["held"], &b["available"]),
        (&json!("7.00"), &json!("0.00"), &json!("7.00"))
    );
    // All of it again changes nothing.
    let again = client.post("/intents", &Value::Array(array)).await.items();
    for (first, again) in items.iter().zip(&again) {
        assert_eq!(
            (&again["result"], &again["code"], &again["replayed"]),
            (&first["result"], &first["code"], &json!(true))
        );
    }
    house.check().await;
}

#[tokio::test]
async fn case_10_open_open_transfer_hold_capture_in_one_all_works_in_order_or_not_at_all() {
    let house = House::new(Server::Pg15).await;
    let up = house.up().await;
    let mut client = house.client(&up);
    let all = |suffix: &str, capture: Value| {
        let mut effects = story(|name| format!("{name}-{suffix}"), |_| Value::Null);
        effects.push(capture);
        json!({ "key": suffix, "all": effects })
    };
    // Within an `all` the hold is the one that this intent makes.
    let capture = |key: &str, amount: &str| json!({ "kind": "ledger.capture", "body": { "hold_key": key, "to": format!("a-{key}"), "amount": amount } });
    let answer = client.post("/intents", &all("good", capture("good", "7"))).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(answer.json()["result"]["all"].as_array().unwrap().len(), 6);
    let b = client.get("/accounts/b-good").await.json();
    assert_eq!((&b["posted"], &b["held"]), (&json!("3.00"), &json!("0.00")));
    let again = client.post("/intents", &all("good", capture("good", "7"))).await;
    assert_eq!(
        (again.status, again.replayed(), again.text()),
        (200, true, answer.text())
    );
    // One effect that cannot be, and none has been.
    let refused = client.post("/intents", &all("bad", capture("bad", "8"))).await;
    assert_eq!(refused.verdict(), (409, "capture_too_large".to_owned()));
    assert_eq!(refused.json()["field"], "all[5].body.amount");
    assert_eq!(client.get("/accounts/a-bad").await.status, 404);
    assert_eq!(
        (
            house.transfers().await,
            house.number("SELECT count(*) FROM counterfoil.ledger_asset").await
        ),
        (2, 1)
    );
    fund_later(&mut client).await;
    house.check().await;
}

/// What an `all` made is there for whoever comes later.
async fn fund_later(client: &mut Client) {
    let body = json!({ "key": fresh(), "from": "a-good", "to": "b-good", "amount": "1" });
    assert_eq!(client.post("/transfers", &body).await.status, 201);
}
