//! `counterfoil report`.

use std::process::ExitCode;

use counterfoil_events::report::{self, Ask, Counts, Interval, Subject};
use counterfoil_pg::{Role, Scope};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::Failure;
use crate::args::{ListFormat, ReportArgs};
use crate::command::{database, tenant};
use crate::settings::Settings;

pub(crate) async fn run(settings: Settings, args: ReportArgs) -> Result<ExitCode, Failure> {
    let database = database(&settings).await?;
    let tenant = tenant(&database, args.tenant).await?;
    let scope = Scope::Tenant(tenant);
    let tx = database.pool(Role::Report).begin(&scope).await?;
    let zone = match &args.zone {
        Some(name) => name.clone(),
        None => counterfoil_tenant::get(&scope, &tx, tenant)
            .await?
            .map_or_else(|| "UTC".to_owned(), |tenant| tenant.zone),
    };
    let zone = TimeZone::get(&zone)
        .map_err(|_| format!("{zone:?} is no time zone; --zone takes a name such as Asia/Taipei"))?;
    let from = moment(args.from.as_deref(), "--from", &zone)?;
    let to = moment(args.to.as_deref(), "--to", &zone)?;
    if from.zip(to).is_some_and(|(from, to)| from >= to) {
        return Err("--to has to be after --from".into());
    }
    let rows = match args.top {
        Some(most) => {
            let counts = report::top(&scope, &tx, tenant, &args.stream, (from, to), most).await?;
            subjects(&counts, args.format)
        }
        None => {
            let ask = Ask {
                stream: args.stream,
                subject: args.subject,
                grain: args.grain.into(),
                week_start: report::weekday(&args.week_start).ok_or_else(|| {
                    format!(
                        "--week-start takes the English name of a day, and not {:?}",
                        args.week_start
                    )
                })?,
                zone,
                from,
                to,
            };
            let counts = report::series(&scope, &tx, tenant, ask).await?;
            intervals(&counts?, args.format)
        }
    };
    tx.rollback().await;
    print!("{rows}");
    Ok(ExitCode::SUCCESS)
}

/// A moment, or the beginning of a day in the zone.
fn moment(text: Option<&str>, flag: &str, zone: &TimeZone) -> Result<Option<Timestamp>, Failure> {
    let Some(text) = text else { return Ok(None) };
    let day = || {
        let date: Date = text.parse().ok().filter(|_| text.len() == 10)?;
        zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0)).compatible().ok()
    };
    match counterfoil_intent::time(text).or_else(day) {
        Some(moment) => Ok(Some(moment)),
        None => Err(format!(
            "{flag} takes a moment or a day, like 2026-01-31T12:00:00Z or 2026-01-31, and not {text:?}"
        )
        .into()),
    }
}

fn intervals(counts: &Counts<Interval>, format: ListFormat) -> String {
    match format {
        ListFormat::Csv => report::intervals_csv(&counts.rows),
        ListFormat::Json => lines(
            counts
                .rows
                .iter()
                .map(|row| serde_json::json!({"start": row.start_text(), "count": row.n})),
        ),
        ListFormat::Text => table("start", counts.rows.iter().map(|row| (row.start_text(), row.n))),
    }
}

fn subjects(counts: &Counts<Subject>, format: ListFormat) -> String {
    match format {
        ListFormat::Csv => report::subjects_csv(&counts.rows),
        ListFormat::Json => lines(
            counts
                .rows
                .iter()
                .map(|row| serde_json::json!({"subject": row.subject, "count": row.n})),
        ),
        ListFormat::Text => table("subject", counts.rows.iter().map(|row| (row.subject.clone(), row.n))),
    }
}

fn lines(rows: impl Iterator<Item = serde_json::Value>) -> String {
    rows.map(|row| format!("{row}\n")).collect()
}

/// Two columns, the numbers aligned to the right.
fn table(name: &str, rows: impl Iterator<Item = (String, i64)>) -> String {
    let rows: Vec<_> = rows.map(|(name, n)| (name, n.to_string())).collect();
    let width = |cells: &mut dyn Iterator<Item = usize>, least: usize| cells.max().unwrap_or(0).max(least);
    let first = width(&mut rows.iter().map(|(name, _)| name.chars().count()), name.len());
    let second = width(&mut rows.iter().map(|(_, n)| n.len()), "count".len());
    let mut out = format!("{name:first$}  {:>second$}\n", "count");
    for (name, n) in rows {
        out.push_str(&format!("{name:first$}  {n:>second$}\n"));
    }
    out
}
