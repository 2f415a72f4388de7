//! `counterfoil check`: what the promises say, asked of the rows.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use counterfoil_ledger::check::{RULES as LEDGER, Violation, check_rule};
use counterfoil_pg::{Role, Scope, Sql};
use tokio::time::Instant;

use crate::Failure;
use crate::args::{CheckArgs, Format};
use crate::command::database;
use crate::command::up::say;
use crate::settings::Settings;

/// Until there is something to say; then one line a rule, and one a minute.
const QUIET: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_secs(60);

pub(crate) async fn run(settings: Settings, args: CheckArgs) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let scope = Scope::Installation;
    let tx = database.pool(Role::Ops).begin(&scope).await?;
    // Whoever ends us shall not leave a statement of hours behind.
    tx.batch("SET LOCAL client_connection_check_interval = '5s'").await?;
    let start = Instant::now();
    let limit = args.timeout.map(Duration::from_secs);
    let mut violations = Vec::new();
    let rules = rules();
    for (i, rule) in rules.iter().copied().enumerate() {
        let left = limit.map(|limit| limit.saturating_sub(start.elapsed()).max(Duration::from_millis(1)));
        // Not that of the role, which is made for requests: zero is none.
        tx.set_statement_timeout(left.unwrap_or_default()).await?;
        let what = format!("rule {} of {}, {}", i + 1, rules.len(), rule.name);
        let found = with_progress(start, &what, check_rule(&scope, &tx, rule)).await;
        violations.extend(found.map_err(|error| match limit {
            Some(limit) if error.sqlstate() == Some("57014") && start.elapsed() >= limit => Failure::from(format!(
                "the check did not end within {} s and stopped in {what}; give it longer with --timeout, or leave that out",
                limit.as_secs()
            )),
            _ => error.into(),
        })?);
    }
    tx.rollback().await;
    match args.format {
        Format::Text => violations.iter().for_each(|violation| println!("{violation}")),
        Format::Json => println!("{}", object(&violations)),
    }
    if violations.is_empty() {
        eprintln!("nothing found: ledger and counts are as they should be");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "{} found; this must not happen, whatever the callers did",
        violations.len()
    );
    Ok(ExitCode::FAILURE)
}

/// Those of the ledger, then that of the counts.
fn rules() -> Vec<&'static Sql> {
    LEDGER.into_iter().chain([counterfoil_events::CHECK_COUNTS]).collect()
}

fn object(violations: &[Violation]) -> serde_json::Value {
    let rules: Vec<_> = rules().iter().map(|rule| rule.name).collect();
    let violations: Vec<_> = violations
        .iter()
        .map(|violation| {
            serde_json::json!({
                "rule": violation.rule,
                "tenant": violation.tenant,
                "subject": violation.subject,
                "detail": violation.detail,
            })
        })
        .collect();
    serde_json::json!({
        "ok": violations.is_empty(),
        "rules": rules,
        "violations": violations,
    })
}

async fn with_progress<T>(start: Instant, what: &str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    let mut next = start + QUIET;
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep_until(next) => {
                say(&format!("checking: {what}; {} s so far", start.elapsed().as_secs()));
                next = Instant::now() + AGAIN;
            }
        }
    }
}
