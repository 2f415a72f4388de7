//! `counterfoil check`: what the promises say, asked of the rows.

use std::process::ExitCode;

use counterfoil_pg::{Role, Scope};

use crate::Failure;
use crate::args::{CheckArgs, Format};
use crate::command::database;
use crate::settings::Settings;

pub(crate) async fn run(settings: Settings, args: CheckArgs) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let scope = Scope::Installation;
    let tx = database.pool(Role::Ops).begin(&scope).await?;
    let violations = counterfoil_ledger::check::check(&scope, &tx).await?;
    tx.rollback().await;
    for violation in &violations {
        match args.format {
            Format::Text => println!("{violation}"),
            Format::Json => println!(
                "{}",
                serde_json::json!({
                    "rule": violation.rule,
                    "tenant": violation.tenant,
                    "subject": violation.subject,
                    "detail": violation.detail,
                })
            ),
        }
    }
    if violations.is_empty() {
        eprintln!("nothing found: the ledger is as it should be");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "{} found; this must not happen, whatever the callers did",
        violations.len()
    );
    Ok(ExitCode::FAILURE)
}
