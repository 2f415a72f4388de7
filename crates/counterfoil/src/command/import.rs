//! `counterfoil import`.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use counterfoil_intent::{Generations, Lanes};
use counterfoil_ledger::import::{self, Counts};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use uuid::Uuid;

use crate::Failure;
use crate::args::{Format, ImportCommand, JournalArgs};
use crate::command::{database, kinds, log, tenant};
use crate::settings::Settings;

pub(crate) async fn run(settings: Settings, command: ImportCommand) -> Result<ExitCode, Failure> {
    match command {
        ImportCommand::Journal(args) => journal(settings, args).await,
        ImportCommand::Log(args) => log::run(settings, args).await,
    }
}

/// The import has lanes of its own: beside a running server it is just another server.
async fn journal(settings: Settings, args: JournalArgs) -> Result<ExitCode, Failure> {
    let file = File::open(&args.file).map_err(|error| format!("cannot read {}: {error}", args.file.display()))?;
    let bytes = file.metadata()?.len();
    let named = args.rejected.is_some();
    let rejected = args.rejected.unwrap_or_else(|| beside(&args.file));
    if named && rejected.exists() {
        let path = rejected.display();
        return Err(format!("{path} is there; name a file with --rejected that is not, or move it away").into());
    }
    let part = with(&rejected, ".part");
    let database = database(&settings).await?;
    let tenant = tenant(&database, args.tenant).await?;
    let generations = Generations::load(&database).await?;
    let kinds = kinds();
    let lanes = Lanes::start(database.clone(), kinds.clone(), generations, settings.lanes.clone());
    let bar = bar(bytes * 2);
    let counts = import::journal(
        &kinds,
        tenant,
        Uuid::from_u128(rand::random()),
        BufReader::new(file),
        // All of it is told again by the next run where this one does not come to its end.
        || File::create(&part),
        async |intents| lanes.submit(intents).await,
        |progress| {
            bar.set_position(progress.bytes);
            bar.set_message(format!(
                "{} imported, {} known",
                progress.counts.imported, progress.counts.known
            ));
        },
    )
    .await;
    bar.finish_and_clear();
    let counts = match counts {
        Ok(counts) => counts,
        Err(error) => {
            let _ = std::fs::remove_file(&part);
            return Err(error.into());
        }
    };
    lanes.shutdown().await;
    if counts.failed == 0 {
        report(&counts, args.format);
        return Ok(ExitCode::SUCCESS);
    }
    let rejected = keep(&part, &rejected)?;
    report(&counts, args.format);
    eprintln!(
        "{} could not be imported; mend {} and import it",
        counted(counts.failed, "transfer"),
        rejected.display()
    );
    Ok(ExitCode::FAILURE)
}

/// Puts the error file where it belongs: beside those of earlier imports, and never in the place of one.
fn keep(part: &Path, wanted: &Path) -> Result<PathBuf, Failure> {
    for n in 1.. {
        let path = match n {
            1 => wanted.to_owned(),
            n => wanted.with_extension(format!("{n}.csv")),
        };
        // A link is not made where something is already.
        match std::fs::hard_link(part, &path) {
            Ok(()) => {
                std::fs::remove_file(part)?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let part = part.display();
                return Err(format!("the rejected rows are in {part}: it could not be renamed ({error})").into());
            }
        }
    }
    unreachable!("there is always another number")
}

fn with(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn beside(file: &Path) -> PathBuf {
    file.with_extension("rejected.csv")
}

/// On a terminal a bar, elsewhere nothing: a log has no use for it.
pub(crate) fn bar(length: u64) -> ProgressBar {
    let target = if stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg}  {eta} left").expect("a template of ours");
    ProgressBar::with_draw_target(Some(length), target).with_style(style)
}

pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 {
        format!("1 {noun}")
    } else {
        format!("{count} {noun}s")
    }
}

fn report(counts: &Counts, format: Format) {
    match format {
        Format::Text => println!(
            "{} imported, {} known already, {} rejected; {}, {} and {} opened",
            counted(counts.imported, "transfer"),
            counts.known,
            counts.failed,
            counted(counts.rows, "row"),
            counted(counts.assets, "asset"),
            counted(counts.accounts, "account")
        ),
        Format::Json => println!(
            "{}",
            serde_json::json!({
                "rows": counts.rows,
                "imported": counts.imported,
                "known": counts.known,
                "rejected": counts.failed,
                "assets": counts.assets,
                "accounts": counts.accounts,
            })
        ),
    }
}
