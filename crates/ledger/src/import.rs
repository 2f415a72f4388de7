//! The import of a journal: a CSV file whose rows of one key are one transfer.
//!
//! The file is read twice: once for the scale of each asset, which is the most decimals that any
//! row writes, and once for the transfers, in a stream. Assets and accounts are made as they come
//! up. What has been imported is known by its key for ever ([`crate::Import`]), so an import that
//! was stopped is simply run again. Rows that cannot be imported go to an error file of the same
//! form, to be mended and imported in turn; in the same transfer nothing else is imported either.
//!
//! Rows of one key stand together. Where they do not, the second group is another transfer under
//! a key that is taken, and goes to the error file.

mod rows;
mod send;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::io::{Read, Seek, SeekFrom, Write};

use counterfoil_intent::{Answer, Intent, Kinds};
use counterfoil_pg::TenantId;
use uuid::Uuid;

use crate::account::AccountCode;
use crate::amount::Decimal;
use crate::asset::{AssetCode, NewAssetBody};
use crate::open::OpenBody;
use crate::source::ImportBody;
use crate::{codes, transfer};

use rows::{Group, Rows, Trouble};
use send::{Effect, Lanes, Sink, Verdict};

/// Transfers handed over at a time.
const BATCH: usize = 500;

/// How far it is, told after each batch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file read, in both passes: twice its length at the end.
    pub bytes: u64,
    pub counts: Counts,
}

/// What has come of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: u64,
    /// Transfers imported now.
    pub imported: u64,
    /// Transfers that were imported before.
    pub known: u64,
    /// Transfers whose rows are in the error file.
    pub failed: u64,
    pub assets: u64,
    pub accounts: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the journal cannot be read")]
    Read(#[source] csv::Error),
    #[error("the journal is empty: its first row has to name the columns {}", rows::COLUMNS.join(", "))]
    Empty,
    #[error("the first row of the journal does not name the columns: {0}")]
    Header(String),
    #[error("the error file cannot be written")]
    Write(#[source] csv::Error),
    /// What came before is imported; the same import goes on from there.
    #[error("the import stopped at line {line}: {reason}; run it again to go on")]
    Stopped { line: u64, reason: &'static str },
}

/// Imports a journal into `tenant`.
///
/// `run` is a fresh id: each run has keys of its own, so that what was refused is tried again.
/// `errors` is called at the first row that cannot be imported. `submit` hands intents to a lane
/// and waits for their answers, in order.
pub async fn journal<R, W>(
    kinds: &Kinds,
    tenant: TenantId,
    run: Uuid,
    input: R,
    errors: impl FnMut() -> std::io::Result<W>,
    submit: impl AsyncFnMut(Vec<Intent>) -> Vec<Answer>,
    progress: impl FnMut(Progress),
) -> Result<Counts, Error>
where
    R: Read + Seek,
    W: Write,
{
    run_on(Lanes::new(kinds, tenant, run, submit), input, errors, progress).await
}

/// One run, on whatever takes its effects.
async fn run_on<R, W>(
    sink: impl Sink,
    mut input: R,
    errors: impl FnMut() -> std::io::Result<W>,
    mut progress: impl FnMut(Progress),
) -> Result<Counts, Error>
where
    R: Read + Seek,
    W: Write,
{
    let scales = scales(Rows::new(&mut input)?, &mut progress)?;
    let length = input
        .seek(SeekFrom::End(0))
        .and_then(|length| input.rewind().map(|()| length));
    let length = length.map_err(|error| Error::Read(error.into()))?;
    let mut rows = Rows::new(&mut input)?;
    let mut run = Run {
        sink,
        errors: Errors {
            open: errors,
            file: None,
        },
        scales,
        assets: HashSet::new(),
        accounts: HashSet::new(),
        counts: Counts::default(),
    };
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let group = rows.next_group()?;
        let last = group.is_none();
        if let Some(group) = group {
            run.counts.rows += group.len();
            match group.body() {
                Ok(body) => batch.push((group, body)),
                Err(trouble) => run.fail(&group, &trouble)?,
            }
        }
        if batch.len() >= BATCH || last {
            run.send(std::mem::take(&mut batch)).await?;
            progress(Progress {
                bytes: length + rows.bytes(),
                counts: run.counts,
            });
        }
        if last {
            run.errors.flush()?;
            return Ok(run.counts);
        }
    }
}

/// The most decimals that the rows of each asset write.
fn scales<R: Read>(mut rows: Rows<R>, progress: &mut impl FnMut(Progress)) -> Result<HashMap<AssetCode, u8>, Error> {
    let mut scales = HashMap::new();
    let mut seen = 0_u64;
    while let Some((asset, amount)) = rows.next_amount()? {
        seen += 1;
        if seen.is_multiple_of(10_000) {
            progress(Progress {
                bytes: rows.bytes(),
                counts: Counts::default(),
            });
        }
        // What is no amount goes to the error file later, and says nothing here.
        let (Some(asset), Ok(_)) = (AssetCode::new(&asset), Decimal::parse(&amount)) else {
            continue;
        };
        let decimals = amount.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let decimals = u8::try_from(decimals).unwrap_or(u8::MAX).min(crate::MAX_SCALE);
        let scale = scales.entry(asset).or_insert(0);
        *scale = decimals.max(*scale);
    }
    Ok(scales)
}

struct Run<S, F, W: Write> {
    sink: S,
    errors: Errors<F, W>,
    scales: HashMap<AssetCode, u8>,
    /// Known to be there.
    assets: HashSet<AssetCode>,
    accounts: HashSet<Box<str>>,
    counts: Counts,
}

impl<S: Sink, F: FnMut() -> std::io::Result<W>, W: Write> Run<S, F, W> {
    async fn send(&mut self, batch: Vec<(Group, ImportBody)>) -> Result<(), Error> {
        let Some((first, _)) = batch.first() else { return Ok(()) };
        let line = first.line();
        self.prepare(&batch, line).await?;
        let effects: Vec<_> = batch.iter().map(|(_, body)| Effect::Import(body.clone())).collect();
        for ((group, _), verdict) in batch.iter().zip(self.settle(&effects, line).await?) {
            match verdict {
                Verdict::Done => self.counts.imported += 1,
                Verdict::Known => self.counts.known += 1,
                Verdict::Refused { code, message } => self.fail(
                    group,
                    &Trouble {
                        code: code.into(),
                        message,
                    },
                )?,
            }
        }
        Ok(())
    }

    /// Makes the assets, then the accounts, that come up for the first time. Each is settled before
    /// the next begins: a transfer must not be refused because the opening of its account waits.
    async fn prepare(&mut self, batch: &[(Group, ImportBody)], line: u64) -> Result<(), Error> {
        let mut assets = Vec::new();
        let mut accounts = Vec::new();
        for (account, asset) in batch.iter().flat_map(|(_, body)| body.accounts()) {
            if self.assets.insert(asset) {
                let scale = self.scales.get(&asset).copied().unwrap_or_default();
                assets.push(Effect::Asset(NewAssetBody { code: asset, scale }));
            }
            if self.accounts.insert(account.as_str().into()) {
                accounts.push(Effect::Open(open(account, asset)));
            }
        }
        let made = |verdicts: Vec<Verdict>| {
            verdicts
                .iter()
                .filter(|verdict| matches!(verdict, Verdict::Done))
                .count()
        };
        // One that is there already may have another scale or asset: then the transfers say so.
        self.counts.assets += made(self.settle(&assets, line).await?) as u64;
        self.counts.accounts += made(self.settle(&accounts, line).await?) as u64;
        Ok(())
    }

    async fn settle(&mut self, effects: &[Effect], line: u64) -> Result<Vec<Verdict>, Error> {
        if effects.is_empty() {
            return Ok(Vec::new());
        }
        self.sink
            .settle(effects)
            .await
            .map_err(|reason| Error::Stopped { line, reason })
    }

    fn fail(&mut self, group: &Group, trouble: &Trouble) -> Result<(), Error> {
        self.counts.failed += 1;
        self.errors.write(group, trouble)
    }
}

fn open(account: &AccountCode, asset: AssetCode) -> OpenBody {
    OpenBody {
        account: account.clone(),
        asset,
        floor: None,
        ceiling: None,
        metadata: None,
    }
}

/// The error file, made when there is something to write.
struct Errors<F, W: Write> {
    open: F,
    file: Option<csv::Writer<W>>,
}

impl<F: FnMut() -> std::io::Result<W>, W: Write> Errors<F, W> {
    fn write(&mut self, group: &Group, trouble: &Trouble) -> Result<(), Error> {
        if self.file.is_none() {
            let file = (self.open)().map_err(|error| Error::Write(error.into()))?;
            let mut file = csv::Writer::from_writer(file);
            file.write_record(rows::COLUMNS.iter().chain(&[rows::ERROR]))
                .map_err(Error::Write)?;
            self.file = Some(file);
        }
        let file = self.file.as_mut().expect("it was just made");
        let told = trouble.to_string();
        for row in group.rows() {
            file.write_record(row.iter().chain([told.as_bytes()]))
                .map_err(Error::Write)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        match &mut self.file {
            None => Ok(()),
            Some(file) => file.flush().map_err(|error| Error::Write(error.into())),
        }
    }
}

/// The most rows of one key that are looked at together.
const MOST_ROWS: usize = *transfer::LEGS.end();

/// What a row is refused with that never was a transfer.
fn row_invalid(message: String) -> Trouble {
    Trouble {
        code: codes::ROW_INVALID.into(),
        message,
    }
}
