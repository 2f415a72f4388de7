//! `counterfoil accounts`.

use std::io::{BufWriter, Write, stdout};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use counterfoil_ledger::read::{self, AccountView};
use counterfoil_pg::{Role, Scope};

use crate::Failure;
use crate::args::{AccountsArgs, ListFormat};
use crate::command::up::say;
use crate::command::{database, tenant};
use crate::settings::Settings;

/// Rows read at a time.
const PAGE: i64 = 1_000;

/// Between two words on how far it is, while nothing is printed.
const QUIET: Duration = Duration::from_secs(1);

pub(crate) async fn run(settings: Settings, args: AccountsArgs) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let scope = Scope::Tenant(tenant(&database, args.tenant).await?);
    let prefix = args.prefix.as_deref().unwrap_or_default();
    let mut out = Table::new(args.format)?;
    let mut after: Option<String> = None;
    let (mut count, mut told) = (0, Instant::now());
    loop {
        let tx = database.pool(Role::App).begin(&scope).await?;
        let page = read::accounts(&scope, &tx, prefix, after.as_deref(), PAGE).await?;
        tx.rollback().await;
        for account in &page {
            out.row(account)?;
        }
        count += page.len();
        if matches!(out, Table::Text(_)) && told.elapsed() > QUIET {
            say(&format!("{count} accounts read"));
            told = Instant::now();
        }
        if i64::try_from(page.len())? < PAGE {
            break;
        }
        after = page.last().map(|account| account.code.clone());
    }
    out.end()?;
    Ok(ExitCode::SUCCESS)
}

const COLUMNS: [&str; 6] = ["account", "asset", "posted", "held", "available", "version"];

/// Rows in one of the formats; aligned columns wait for the last row.
enum Table {
    Text(Vec<[String; 6]>),
    Json(BufWriter<std::io::Stdout>),
    Csv(Box<csv::Writer<std::io::Stdout>>),
}

impl Table {
    fn new(format: ListFormat) -> Result<Self, Failure> {
        Ok(match format {
            ListFormat::Text => Self::Text(vec![COLUMNS.map(str::to_owned)]),
            ListFormat::Json => Self::Json(BufWriter::new(stdout())),
            ListFormat::Csv => {
                let mut writer = csv::Writer::from_writer(stdout());
                writer.write_record(COLUMNS)?;
                Self::Csv(Box::new(writer))
            }
        })
    }

    fn row(&mut self, account: &AccountView) -> Result<(), Failure> {
        let cells = [
            account.code.clone(),
            account.asset.to_string(),
            account.posted.to_string(),
            account.held.to_string(),
            account.available.to_string(),
            account.version.to_string(),
        ];
        match self {
            Self::Text(rows) => rows.push(cells),
            Self::Json(out) => {
                let [code, asset, posted, held, available, _] = cells;
                let row = serde_json::json!({
                    "account": code,
                    "asset": asset,
                    "posted": posted,
                    "held": held,
                    "available": available,
                    "version": account.version,
                });
                writeln!(out, "{row}")?;
            }
            Self::Csv(writer) => writer.write_record(&cells)?,
        }
        Ok(())
    }

    fn end(self) -> Result<(), Failure> {
        match self {
            Self::Text(rows) => {
                let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
                let [code, asset, posted, held, available, version] = [0, 1, 2, 3, 4, 5].map(width);
                let mut out = BufWriter::new(stdout());
                for row in &rows {
                    let [a, b, c, d, e, f] = row;
                    writeln!(
                        out,
                        "{a:code$}  {b:asset$}  {c:>posted$}  {d:>held$}  {e:>available$}  {f:>version$}"
                    )?;
                }
                out.flush()?;
            }
            Self::Json(mut out) => out.flush()?,
            Self::Csv(mut writer) => writer.flush()?,
        }
        Ok(())
    }
}
