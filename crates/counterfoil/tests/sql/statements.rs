//! Each statement is prepared, and explained as the roles that send it: that asks for the rights,
//! too, which preparing does not.

use std::fmt::Write as _;

use counterfoil_pg::{Client, Role, Sql};
use counterfoil_test::{Server, database};

use super::{scope, session, with_generations};

/// Every crate that has statements. The server has none.
const CRATES: [(&str, &[&Sql]); 6] = [
    ("pg", counterfoil_pg::statements::ALL),
    ("tenant", counterfoil_tenant::STATEMENTS),
    ("intent", counterfoil_intent::STATEMENTS),
    ("events", counterfoil_events::STATEMENTS),
    ("ledger", counterfoil_ledger::STATEMENTS),
    ("migrate", counterfoil_migrate::STATEMENTS),
];

/// Who sends it.
fn roles(room: &str, statement: &str) -> &'static [Role] {
    use Role::{App, Lane, Ops, Owner, Report};
    match (room, statement) {
        ("pg", "scope_read") => &[Owner, App, Lane, Ops, Report],
        ("pg", "outcome_insert" | "outcome_void" | "outcome_find") => &[App, Lane, Ops],
        ("pg", "advisory_lock_shared") => &[Lane],
        ("pg", "advisory_try_exclusive") => &[Owner, Ops],
        ("pg", "advisory_lock_exclusive" | "outcome_partitions" | "clock_today") => &[Owner],
        ("pg", _) => &[App],
        ("tenant", "tenant_get") => &[App, Ops, Report],
        ("tenant", _) => &[Ops],
        ("intent", "stub_get") => &[App],
        ("intent", "clock_read") => &[App, Lane],
        ("intent", "generation_settings") => &[Owner, Ops],
        ("intent", "generation_open") => &[Lane],
        ("intent", name) if !name.starts_with("stub_") => &[Owner],
        ("events", "event_insert") => &[Lane, Ops],
        ("events", "spill_insert") => &[Lane],
        ("events", "day_add" | "delta_any" | "delta_pages") => &[Owner],
        ("events", name) if name.starts_with("report_") => &[Report],
        ("events", _) => &[Ops],
        ("ledger", name) if name.starts_with("check_") || name == "hold_due" => &[Ops],
        (
            "ledger",
            "account_get" | "account_list" | "entry_list" | "entry_list_back" | "balance_recorded"
            | "balance_effective" | "transfer_get" | "transfer_lines" | "hold_get" | "hold_list",
        ) => &[App, Report],
        ("intent" | "ledger", _) => &[Lane],
        ("migrate", "migration_insert") => &[Owner],
        ("migrate", _) => &[Owner, Ops],
        _ => panic!("nobody sends {statement} of {room}"),
    }
}

#[tokio::test]
async fn every_statement_means_the_same_on_the_oldest_server_and_the_newest() {
    for server in Server::DIRECT {
        let test = database(server).await;
        with_generations(&test).await;
        let mut sessions = Vec::new();
        for role in Role::ALL {
            sessions.push((role, session(&test, role).await));
        }
        let mut said = String::new();
        for (room, statements) in CRATES {
            for sql in statements {
                let senders = roles(room, sql.name);
                for (role, client) in sessions.iter().filter(|(role, _)| senders.contains(role)) {
                    may_be_sent(client, *role, sql).await.unwrap_or_else(|error| {
                        panic!("{room}/{} as {} on {server:?}: {error:?}", sql.name, role.name())
                    });
                }
                let (_, client) = sessions
                    .iter()
                    .find(|(role, _)| *role == senders[0])
                    .expect("a session of each role");
                said += &signature(client, room, sql).await;
            }
        }
        insta::assert_snapshot!("statements", said);
    }
}

/// What goes in and what comes out, as the server understands it.
#[allow(clippy::disallowed_methods, reason = "this looks at statements, and runs none")]
async fn signature(client: &Client, room: &str, sql: &Sql) -> String {
    let prepared = client
        .prepare(sql.text)
        .await
        .unwrap_or_else(|error| panic!("{room}/{}: {error:?}", sql.name));
    assert_eq!(
        prepared.params(),
        sql.params,
        "declared and inferred parameters of {room}/{}",
        sql.name
    );
    let mut line = format!("{room}/{}", sql.name);
    let params: Vec<_> = prepared.params().iter().map(|ty| ty.name()).collect();
    write!(line, " ({})", params.join(", ")).expect("a string grows");
    let columns: Vec<_> = prepared
        .columns()
        .iter()
        .map(|column| format!("{} {}", column.name(), column.type_().name()))
        .collect();
    if !columns.is_empty() {
        write!(line, " -> {}", columns.join(", ")).expect("a string grows");
    }
    line.push('\n');
    line
}

/// A plan is made and started, as far as its rights and policies, and not run.
#[allow(clippy::disallowed_methods, reason = "this looks at statements, and runs none")]
async fn may_be_sent(client: &Client, role: Role, sql: &Sql) -> Result<(), tokio_postgres::Error> {
    let nulls = vec!["NULL"; sql.params.len()].join(", ");
    let arguments = if nulls.is_empty() {
        String::new()
    } else {
        format!("({nulls})")
    };
    client
        .batch_execute(&format!(
            "BEGIN; {}; PREPARE one AS {}; EXPLAIN EXECUTE one{arguments}; DEALLOCATE one; ROLLBACK",
            scope(role),
            sql.text
        ))
        .await
}
