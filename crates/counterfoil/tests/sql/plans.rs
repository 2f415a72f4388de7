//! The plans of the statements that every batch sends, over 100,000 rows, as the lanes get them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use counterfoil_pg::{Client, Role, Sql};
use counterfoil_test::{Server, TestDatabase, database};
use serde_json::Value;

use super::{scope, session, with_generations};

/// By name, and whether its plan has a filter of the policy to be looked at. (What an INSERT checks
/// is in no plan.)
const HOT: [(&str, bool); 12] = [
    ("stub_find", true),
    ("stub_find_any", true),
    ("stub_insert", false),
    ("balance_lock", true),
    ("balance_lock_skip", true),
    ("balance_load", true),
    ("balance_confirm", true),
    ("balance_post", true),
    ("balance_update", true),
    ("balance_make", false),
    ("entry_insert", false),
    ("transfer_insert", false),
];

/// A lane keeps the plans that it made while the tables were new, until they are analysed; so they
/// must be those of full ones. Those that are not are named here, with the reason.
const UNTIL_ANALYSED: [&str; 0] = [];

fn statement(name: &str) -> &'static Sql {
    let all = counterfoil_intent::STATEMENTS
        .iter()
        .chain(counterfoil_ledger::STATEMENTS);
    all.copied()
        .find(|sql| sql.name == name)
        .unwrap_or_else(|| panic!("there is no statement {name}"))
}

/// A hundred tenants with a thousand rows each, in every table that grows.
#[allow(
    clippy::disallowed_methods,
    reason = "the administrator fills tables past their policies"
)]
async fn fill(test: &TestDatabase) {
    let admin = test.admin().await;
    admin
        .batch_execute(
            "INSERT INTO counterfoil.ledger_balance
                 SELECT i % 100 + 1, gen_random_uuid(), 'EUR', 2, 0, 0, 0, NULL, NULL, 1, NULL, now()
                 FROM generate_series(1, 100000) AS i;
             INSERT INTO counterfoil.ledger_transfer
                 SELECT i % 100 + 1, gen_random_uuid(), '{}', '{}', NULL, NULL, now(), now()
                 FROM generate_series(1, 100000) AS i;
             INSERT INTO counterfoil.ledger_entry
                 SELECT b.tenant_id, b.account_id, 2, gen_random_uuid(), 1, 1, now(), now()
                 FROM counterfoil.ledger_balance AS b;
             INSERT INTO counterfoil.ledger_hold
                 SELECT b.tenant_id, gen_random_uuid(), b.account_id, 1, 0, 'active', now(), NULL, now(), now()
                 FROM counterfoil.ledger_balance AS b;
             INSERT INTO counterfoil.stub
                 SELECT i % 100 + 1, convert_to('t' || i, 'UTF8'), g.gen, 'ledger.transfer', 1, true, '', '{}', now()
                 FROM generate_series(1, 100000) AS i, counterfoil.stub_generation AS g;
             ANALYZE",
        )
        .await
        .expect("rows");
}

#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "this explains statements, and runs none")]
async fn hot_statements_find_their_rows_by_index() {
    let mut differ = BTreeSet::new();
    for server in Server::DIRECT {
        let test = database(server).await;
        with_generations(&test).await;
        let lane = session(&test, Role::Lane).await;
        let row = lane.query_one("SHOW plan_cache_mode", &[]).await.expect("a setting");
        let mode: String = row.get(0);
        assert_eq!(mode, "force_generic_plan", "counterfoil init sets it for the role");
        let new = shapes(&lane, server).await;
        fill(&test).await;
        let full = shapes(&lane, server).await;
        differ.extend(
            new.iter()
                .zip(&full)
                .filter(|(new, full)| new != full)
                .map(|(new, _)| new.0),
        );
        let said: String = full.iter().map(|(name, shape)| format!("{name}\n{shape}")).collect();
        insta::assert_snapshot!(format!("plans_{server:?}").to_lowercase(), said);
    }
    assert_eq!(
        differ,
        BTreeSet::from(UNTIL_ANALYSED),
        "plans that are others on new tables than on full ones, and the list of those that may be"
    );
}

/// The plans of the hot statements, one after the other, and what must hold of each.
#[allow(clippy::disallowed_methods, reason = "this explains statements, and runs none")]
async fn shapes(lane: &Client, server: Server) -> Vec<(&'static str, String)> {
    let query = "SELECT max(gen) FROM counterfoil.stub_generation";
    let open: i32 = lane.query_one(query, &[]).await.expect("a generation").get(0);
    let mut shapes = Vec::new();
    for (name, walls) in HOT {
        let plan = explain(lane, statement(name), open).await;
        let text = plan.to_string();
        let mut shape = String::new();
        describe(&plan["Plan"], 1, &mut shape);
        assert!(
            !shape.contains("Seq Scan"),
            "{name} on {server:?} reads whole tables:\n{shape}"
        );
        assert!(
            !walls || text.contains("hashed SubPlan"),
            "{name} on {server:?}: the policy is not hashed:\n{text}"
        );
        shapes.push((name, shape));
    }
    shapes
}

#[allow(clippy::disallowed_methods, reason = "this explains statements, and runs none")]
async fn explain(lane: &Client, sql: &Sql, open: i32) -> Value {
    let arguments: Vec<String> = match sql.name {
        "stub_find" => vec!["NULL".to_owned(), "NULL".to_owned(), open.to_string()],
        _ => vec!["NULL".to_owned(); sql.params.len()],
    };
    let begin = format!("BEGIN; {}; PREPARE one AS {}", scope(Role::Lane), sql.text);
    lane.batch_execute(&begin)
        .await
        .unwrap_or_else(|error| panic!("{}: {error:?}", sql.name));
    let rows = lane
        .simple_query(&format!(
            "EXPLAIN (FORMAT JSON, COSTS OFF) EXECUTE one({})",
            arguments.join(", ")
        ))
        .await
        .unwrap_or_else(|error| panic!("{}: {error:?}", sql.name));
    lane.batch_execute("ROLLBACK; DEALLOCATE one").await.expect("the end");
    let text = rows
        .iter()
        .find_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        })
        .expect("a plan");
    let plans: Value = serde_json::from_str(text).expect("JSON");
    plans[0].clone()
}

/// The kinds of the nodes, and what they read.
fn describe(node: &Value, depth: usize, out: &mut String) {
    let text = |name: &str| node[name].as_str().unwrap_or_default();
    let what = [text("Relation Name"), text("Index Name"), text("Function Name")].join(" ");
    // Generations are numbered by the time: of their partitions one is like the other.
    let what: String = what.chars().filter(|c| !c.is_ascii_digit()).collect();
    let line = format!("{:depth$}{} {what}", "", text("Node Type"), depth = depth * 2);
    let line = line.trim_end();
    writeln!(out, "{line}").expect("a string grows");
    for child in node["Plans"].as_array().into_iter().flatten() {
        describe(child, depth + 1, out);
    }
}
