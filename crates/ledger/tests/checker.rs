//! The checker finds what it is there for: each rule is broken from outside, and named.

use counterfoil_test::Server;
use serde_json::json;

use crate::database::Ledger;

async fn sound() -> Ledger {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("bank", None), ("cash", Some("0")), ("shop", None)]).await;
    let paid = ledger.pay("bank", "cash", "10").await.id("transfer");
    let wrong = ledger.pay("bank", "shop", "1").await.id("transfer");
    ledger
        .run("ledger.reverse", json!({"transfer": wrong.to_string()}))
        .await
        .ok();
    let hold = ledger
        .run(
            "ledger.hold",
            json!({"account": "cash", "amount": "5", "expires_in": 1000}),
        )
        .await
        .id("hold");
    ledger
        .run(
            "ledger.capture",
            json!({"hold": hold.to_string(), "to": "shop", "amount": "2"}),
        )
        .await
        .ok();
    ledger
        .outside(&format!(
            "INSERT INTO counterfoil.ledger_source SELECT tenant_id, 'source', id, '\\x00', now()
               FROM counterfoil.ledger_transfer WHERE id = '{paid}'"
        ))
        .await;
    ledger.assert_whole().await;
    ledger
}

/// Each rule, and what breaks it. `@cash` is a condition: the account that money and holds are on.
const DAMAGE: &[(&str, &str)] = &[
    (
        "check_sums",
        "UPDATE ledger_entry SET amount = amount + 1 WHERE @cash AND version = 2",
    ),
    (
        "check_balances",
        "UPDATE ledger_balance SET posted = posted + 1 WHERE @cash",
    ),
    ("check_balances", "UPDATE ledger_balance SET version = 2 WHERE @cash"),
    ("check_balances", "DELETE FROM ledger_balance WHERE @cash"),
    (
        "check_entries",
        "UPDATE ledger_entry SET posted = posted + 1 WHERE @cash AND version = 2",
    ),
    (
        "check_entries",
        "UPDATE ledger_entry SET recorded_at = now() + interval '1 h' WHERE @cash AND version = 2",
    ),
    (
        "check_transfers",
        "DELETE FROM ledger_entry WHERE @cash AND version = 2",
    ),
    (
        "check_transfers",
        "DELETE FROM ledger_transfer WHERE captures IS NOT NULL",
    ),
    (
        "check_transfers",
        "UPDATE ledger_transfer SET accounts = accounts || accounts[1], versions = versions || 99::bigint",
    ),
    (
        "check_transfers",
        "UPDATE ledger_transfer SET effective_at = effective_at + interval '1 s'",
    ),
    ("check_reversals", "UPDATE ledger_transfer SET reversed_by = NULL"),
    ("check_reversals", "UPDATE ledger_transfer SET reverses = NULL"),
    (
        // A capture passes itself off as the reversal of a payment.
        "check_reversals",
        "WITH paid AS (SELECT id FROM ledger_transfer
                        WHERE reverses IS NULL AND reversed_by IS NULL AND captures IS NULL),
              taken AS (UPDATE ledger_transfer AS t SET reverses = paid.id FROM paid
                         WHERE t.captures IS NOT NULL RETURNING t.id)
         UPDATE ledger_transfer AS t SET reversed_by = taken.id FROM taken, paid WHERE t.id = paid.id",
    ),
    ("check_holds", "UPDATE ledger_balance SET held = held + 1 WHERE @cash"),
    (
        "check_holds",
        "UPDATE ledger_balance SET next_expiry = NULL WHERE @cash",
    ),
    (
        "check_holds",
        "UPDATE ledger_hold SET captured = captured + 1, amount = amount + 1",
    ),
    (
        "check_holds",
        "DELETE FROM ledger_hold; UPDATE ledger_balance SET held = 0",
    ),
    ("check_limits", "UPDATE ledger_balance SET floor = 600 WHERE @cash"),
    ("check_limits", "UPDATE ledger_balance SET ceiling = 700 WHERE @cash"),
    (
        "check_limits",
        "UPDATE ledger_balance SET closed_at = now() WHERE @cash",
    ),
    (
        "check_accounts",
        "UPDATE ledger_account SET asset = 'EUR' WHERE code = 'cash'",
    ),
    ("check_accounts", "DELETE FROM ledger_account WHERE code = 'cash'"),
    ("check_accounts", "UPDATE ledger_asset SET scale = 3"),
    (
        "check_sources",
        "UPDATE ledger_source SET transfer_id = gen_random_uuid()",
    ),
    (
        "check_sources",
        "INSERT INTO ledger_source SELECT tenant_id, 'twice', transfer_id, hash, now() FROM ledger_source",
    ),
    ("check_blanks", "INSERT INTO ledger_asset VALUES (1, 'EUR', 0)"),
    ("check_blanks", "UPDATE ledger_balance SET version = 0 WHERE @cash"),
    ("check_blanks", "UPDATE ledger_source SET hash = NULL"),
];

#[tokio::test]
async fn every_rule_finds_what_breaks_it() {
    let ledger = sound().await;
    let cash = format!("account_id = '{}'", counterfoil_ledger::AccountId::of("cash").0);
    ledger.outside("SET search_path = counterfoil").await;
    for (rule, damage) in DAMAGE {
        ledger.outside("CREATE SCHEMA kept").await;
        for table in TABLES {
            ledger
                .outside(&format!("CREATE TABLE kept.{table} AS TABLE {table}"))
                .await;
        }
        ledger.outside(&damage.replace("@cash", &cash)).await;
        let found = ledger.violations().await;
        let named = format!("{rule}: ");
        assert!(
            found.iter().any(|found| found.starts_with(&named)),
            "{rule}: {damage}: {found:#?}"
        );
        for table in TABLES {
            ledger
                .outside(&format!("TRUNCATE {table}; INSERT INTO {table} TABLE kept.{table}"))
                .await;
        }
        ledger.outside("DROP SCHEMA kept CASCADE").await;
        ledger.assert_whole().await;
    }
}

const TABLES: [&str; 7] = [
    "ledger_asset",
    "ledger_account",
    "ledger_balance",
    "ledger_transfer",
    "ledger_entry",
    "ledger_hold",
    "ledger_source",
];
