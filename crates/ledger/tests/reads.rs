//! What can be asked.

use counterfoil_ledger::read::{self, Order};
use counterfoil_pg::{Role, Scope};
use counterfoil_test::Server;
use jiff::Timestamp;
use serde_json::json;

use crate::database::Ledger;

/// Thirty payments of 1, 2, 3 … with holds in between, so that versions have gaps; tells when each
/// was recorded.
async fn history(ledger: &Ledger) -> Vec<Timestamp> {
    ledger.usd(&[("bank", None), ("cash", None)]).await;
    let mut times = Vec::new();
    for i in 1..=30 {
        times.push(ledger.pay("bank", "cash", &i.to_string()).await.ok().recorded_at);
        if i % 3 == 0 {
            ledger
                .run("ledger.hold", json!({"account": "cash", "amount": "1"}))
                .await
                .ok();
        }
    }
    times
}

#[tokio::test]
async fn the_balance_as_of_any_recorded_time_is_that_of_the_entries_until_then() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        let times = history(&ledger).await;
        let tx = ledger.app().await;
        let at = async |code: &str, at: Timestamp| {
            let found = read::recorded_balance(&ledger.scope(), &tx, code, at).await.unwrap();
            found.map(|found| found.posted.to_string())
        };
        let tick = jiff::SignedDuration::from_micros(1);
        for (i, time) in times.iter().enumerate() {
            let sum = |n: usize| format!("{}.00", n * (n + 1) / 2);
            assert_eq!(at("cash", *time).await, Some(sum(i + 1)), "{server:?}: at {i}");
            assert_eq!(at("cash", *time - tick).await, Some(sum(i)), "{server:?}: before {i}");
        }
        assert_eq!(at("cash", Timestamp::UNIX_EPOCH).await.as_deref(), Some("0.00"));
        assert_eq!(at("bank", Timestamp::MAX).await.as_deref(), Some("-465.00"));
        assert_eq!(at("nobody", Timestamp::MAX).await, None);
        tx.rollback().await;
    }
}

#[tokio::test]
async fn the_balance_as_of_an_effective_time_counts_what_takes_effect_by_then() {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("bank", None), ("cash", None)]).await;
    // Recorded in another order than they take effect.
    for (amount, day) in [("4", "03"), ("1", "01"), ("2", "02")] {
        let time = format!("2026-01-{day}T00:00:00Z");
        let body = json!({"from": "bank", "to": "cash", "amount": amount, "effective_at": time});
        ledger.run("ledger.transfer", body).await.ok();
    }
    let tx = ledger.app().await;
    for (time, posted) in [
        ("2025-12-31T23:59:59Z", "0.00"),
        ("2026-01-01T00:00:00Z", "1.00"),
        ("2026-01-02T12:00:00Z", "3.00"),
        ("2026-01-03T00:00:00Z", "7.00"),
    ] {
        let found = read::effective_balance(&ledger.scope(), &tx, "cash", time.parse().unwrap())
            .await
            .unwrap();
        assert_eq!(found.unwrap().posted.to_string(), posted, "{time}");
    }
    tx.rollback().await;
}

#[tokio::test]
async fn a_statement_pages_both_ways_and_carries_the_balance_after_each_entry() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        history(&ledger).await;
        let tx = ledger.app().await;
        let mut pages = Vec::new();
        for order in [Order::OldestFirst, Order::NewestFirst] {
            let (mut all, mut after) = (Vec::new(), None);
            loop {
                let page = read::entries(&ledger.scope(), &tx, "cash", order, after, 7)
                    .await
                    .unwrap()
                    .unwrap();
                let Some(last) = page.last() else { break };
                after = Some(last.version);
                all.extend(
                    page.iter()
                        .map(|entry| (entry.version, entry.amount.to_string(), entry.posted.to_string())),
                );
            }
            pages.push(all);
        }
        pages[1].reverse();
        assert_eq!(pages[0], pages[1]);
        assert_eq!(pages[0].len(), 30);
        assert_eq!(pages[0].last().unwrap(), &(40, "30.00".to_owned(), "465.00".to_owned()));
        assert!(
            read::entries(&ledger.scope(), &tx, "nobody", Order::OldestFirst, None, 7)
                .await
                .unwrap()
                .is_none()
        );
        tx.rollback().await;
    }
}

#[tokio::test]
async fn accounts_page_by_the_bytes_of_their_codes_and_by_prefix() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        let codes = ["B", "a", "a%", "a:1", "a:2", "a\u{10ffff}", "ab", "å", "口座"];
        ledger.usd(&codes.map(|code| (code, None))).await;
        let tx = ledger.app().await;
        let list = async |prefix: &str, after: Option<&str>, limit| {
            let page = read::accounts(&ledger.scope(), &tx, prefix, after, limit)
                .await
                .unwrap();
            page.into_iter().map(|view| view.code).collect::<Vec<_>>()
        };
        let mut sorted = codes.map(str::to_owned);
        sorted.sort();
        assert_eq!(list("", None, 100).await, sorted);
        assert_eq!(
            list("a", None, 100).await,
            ["a", "a%", "a:1", "a:2", "ab", "a\u{10ffff}"]
        );
        assert_eq!(list("a:", None, 1).await, ["a:1"]);
        assert_eq!(list("a:", Some("a:1"), 5).await, ["a:2"]);
        assert_eq!(list("a%", None, 5).await, ["a%"]);
        assert_eq!(list("a", Some("B"), 2).await, ["a", "a%"]);
        assert_eq!(list("a", Some("a\u{10ffff}"), 2).await, [""; 0]);
        assert_eq!(list("c", None, 5).await, [""; 0]);
        tx.rollback().await;
    }
}

#[tokio::test]
async fn another_tenant_sees_nothing_and_shares_no_code() {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("bank", None), ("cash", None)]).await;
    let id = ledger.pay("bank", "cash", "1").await.id("transfer");
    let other = ledger.test.tenant("two").await;
    let (scope, pool) = (Scope::Tenant(other), ledger.db.pool(Role::App));
    let tx = pool.begin(&scope).await.unwrap();
    assert!(read::account(&scope, &tx, "cash").await.unwrap().is_none());
    assert!(read::transfer(&scope, &tx, id).await.unwrap().is_none());
    assert!(read::accounts(&scope, &tx, "", None, 10).await.unwrap().is_empty());
    // Even a query that asks for the first tenant by its number.
    assert!(read::transfer(&ledger.scope(), &tx, id).await.unwrap().is_none());
    tx.rollback().await;
    let open = json!({"account": "cash", "asset": "USD"});
    let intent = ledger.intent_of(other, "k", "ledger.open", &open);
    assert_eq!(ledger.submit(vec![intent]).await[0].code(), "asset_unknown");
    let reverse = ledger.intent_of(other, "l", "ledger.reverse", &json!({"transfer": id.to_string()}));
    assert_eq!(ledger.submit(vec![reverse]).await[0].code(), "transfer_unknown");
}
