//! The import of an access log: each line an event, with the time that is in it.
//!
//! An event of a log has no id of its own. It is made of the line's bytes and of how many lines like it came
//! before in the file, so that identical lines are separate events and a file that is imported again adds
//! nothing. Whoever imports a part of a file therefore reads it from its beginning. That costs 16 bytes of
//! memory for each distinct line.

mod combined;

use std::collections::{BTreeSet, HashMap};
use std::io::{self, BufRead};
use std::time::Duration;

use counterfoil_pg::{Database, Error as Pg, TenantId};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::actor::Actors;
use crate::event::{Event, Limits, Reader};
use crate::lane::{Answer, EventLanes};

pub use combined::Entry;

/// Events handed over at a time.
const BATCH: usize = 2_000;

/// The longest line that is looked at, in bytes.
const MAX_LINE: usize = 64 << 10;

/// How long events that could not be stored are tried again.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(250);

/// What is imported, and whose it is.
#[derive(Debug, Clone)]
pub struct Import {
    pub tenant: TenantId,
    pub stream: String,
    /// Lines that begin at these bytes of the file, uncompressed; the end is not among them.
    pub from: u64,
    pub to: u64,
}

/// How far it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lines read, those of other parts of the file not counted.
    pub lines: u64,
    pub stored: u64,
    /// Stored before.
    pub known: u64,
    pub rejected: u64,
    /// Bytes read, uncompressed.
    pub bytes: u64,
}

/// A line that is no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// From one on.
    pub line: u64,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the log cannot be read after line {line}")]
    Read {
        line: u64,
        #[source]
        source: io::Error,
    },
    #[error("a partition for the events of the log could not be made")]
    Partition(#[source] Pg),
    /// What came before is stored; the same import goes on from there.
    #[error("the import stopped near line {line}: {reason}; run it again to go on")]
    Stopped { line: u64, reason: &'static str },
}

/// Imports a log in the combined or common format.
///
/// # Errors
/// [`Error`]; what was stored until then stays, and is known when the import is run again.
pub async fn log(
    database: &Database,
    lanes: &EventLanes,
    actors: &Actors,
    import: &Import,
    input: impl BufRead,
    mut rejected: impl FnMut(Rejected),
    mut progress: impl FnMut(Counts),
) -> Result<Counts, Error> {
    let mut lines = Lines::new(input);
    let mut counts = Counts::default();
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let line = lines.next().map_err(|source| Error::Read {
            line: lines.number,
            source,
        })?;
        let ended = line.is_none();
        if let Some(Line {
            start,
            number,
            occurrence,
            id,
        }) = line
            && (import.from..import.to).contains(&start)
        {
            counts.lines += 1;
            match event(import, actors, lines.text(), id, occurrence) {
                Ok(event) => batch.push(event),
                Err(reason) => {
                    counts.rejected += 1;
                    rejected(Rejected { line: number, reason });
                }
            }
        }
        // What is behind the part changes nothing in it.
        let ended = ended || lines.start >= import.to;
        if batch.len() == BATCH || ended {
            make_days(database, lanes, &batch).await?;
            land(
                lanes,
                import.tenant,
                std::mem::take(&mut batch),
                lines.number,
                &mut counts,
            )
            .await?;
            counts.bytes = lines.start;
            progress(counts);
        }
        if ended {
            return Ok(counts);
        }
    }
}

/// Makes the partitions that the events go to, so that they need not wait aside.
async fn make_days(database: &Database, lanes: &EventLanes, batch: &[Event]) -> Result<(), Error> {
    let days: BTreeSet<Timestamp> = batch.iter().map(|event| event.at).collect();
    lanes.days().make(database, days).await.map_err(Error::Partition)
}

async fn land(
    lanes: &EventLanes,
    tenant: TenantId,
    mut events: Vec<Event>,
    line: u64,
    counts: &mut Counts,
) -> Result<(), Error> {
    let begun = std::time::Instant::now();
    while !events.is_empty() {
        let answers = lanes.submit(tenant, events.clone(), None).await;
        let mut again = Vec::new();
        let mut reason = "";
        for (event, answer) in events.into_iter().zip(answers) {
            match answer {
                Answer::Stored => counts.stored += 1,
                Answer::Known => counts.known += 1,
                Answer::Failed { .. } => {
                    let reason = "PostgreSQL would not take an event; the log of this program says why";
                    return Err(Error::Stopped { line, reason });
                }
                Answer::Unavailable { reason: why } => {
                    reason = why;
                    again.push(event);
                }
                Answer::TooMany { .. } | Answer::DeadlinePassed | Answer::Unknown => {
                    reason = "it could not be learnt whether events were stored";
                    again.push(event);
                }
                Answer::ShuttingDown => {
                    let reason = "it was told to stop";
                    return Err(Error::Stopped { line, reason });
                }
            }
        }
        events = again;
        if !events.is_empty() {
            if begun.elapsed() > PATIENCE {
                return Err(Error::Stopped { line, reason });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    Ok(())
}

fn event(import: &Import, actors: &Actors, text: &[u8], id: [u8; 16], occurrence: u32) -> Result<Event, String> {
    if text.len() >= MAX_LINE {
        return Err(format!("the line is longer than {MAX_LINE} bytes"));
    }
    let text = String::from_utf8_lossy(text);
    let entry = Entry::parse(&text)?;
    let reader = Reader {
        limits: Limits {
            late: None,
            ..Limits::default()
        },
        actors,
        tenant: import.tenant,
        now: crate::clock::now(),
    };
    let id: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    reader
        .entry(&import.stream, &entry, &format!("log-{id}-{occurrence}"))
        .map_err(|invalid| invalid.message.into_owned())
}

/// A line, and what it is called.
struct Line {
    /// Where it begins, in bytes.
    start: u64,
    number: u64,
    /// Lines like it before it.
    occurrence: u32,
    id: [u8; 16],
}

struct Lines<R> {
    input: R,
    text: Vec<u8>,
    /// Where the next line begins.
    start: u64,
    number: u64,
    /// By 64 bits of the hash: should two lines have the same, their numbers go on from each other, and they
    /// are told apart by the rest.
    seen: HashMap<u64, u32>,
}

impl<R: BufRead> Lines<R> {
    fn new(input: R) -> Self {
        Self {
            input,
            text: Vec::new(),
            start: 0,
            number: 0,
            seen: HashMap::new(),
        }
    }

    /// The line that was read last, without its end.
    fn text(&self) -> &[u8] {
        &self.text
    }

    /// The next line that is not empty. Of one that is too long only the beginning is kept.
    fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            self.text.clear();
            let start = self.start;
            let length = self.read()?;
            if length == 0 {
                return Ok(None);
            }
            self.start += length;
            self.number += 1;
            if self.text.is_empty() {
                continue;
            }
            // Of one that is too long, which is no event anyhow, only its beginning.
            let hash = Sha256::digest(&self.text);
            let short = u64::from_be_bytes(hash[16..24].try_into().expect("a hash has 32 bytes"));
            let seen = self.seen.entry(short).or_default();
            let occurrence = *seen;
            *seen += 1;
            return Ok(Some(Line {
                start,
                number: self.number,
                occurrence,
                id: hash[..16].try_into().expect("a hash has 32 bytes"),
            }));
        }
    }

    /// Reads a line, without its end. Returns how many bytes of the file it took.
    fn read(&mut self) -> io::Result<u64> {
        let mut length = 0;
        loop {
            let buffer = self.input.fill_buf()?;
            if buffer.is_empty() {
                break;
            }
            let end = buffer.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            let line = &buffer[..end.unwrap_or(buffer.len())];
            let room = MAX_LINE - self.text.len();
            self.text.extend_from_slice(&line[..line.len().min(room)]);
            self.input.consume(taken);
            length += taken as u64;
            if end.is_some() {
                break;
            }
        }
        if self.text.last() == Some(&b'\r') {
            self.text.pop();
        }
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufReader, Cursor};

    fn ids(text: &str, buffer: usize) -> Vec<(u64, u64, [u8; 16], u32)> {
        let mut lines = Lines::new(BufReader::with_capacity(buffer, Cursor::new(text.to_owned())));
        let mut out = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            out.push((line.start, line.number, line.id, line.occurrence));
        }
        out
    }

    #[test]
    fn identical_lines_are_numbered_and_bytes_counted_whatever_the_buffer() {
        let text = "a\nb\r\na\n\na\nb";
        let whole = ids(text, 8_192);
        let shown: Vec<_> = whole
            .iter()
            .map(|(start, number, _, occurrence)| (*start, *number, *occurrence))
            .collect();
        assert_eq!(shown, [(0, 1, 0), (2, 2, 0), (5, 3, 1), (8, 5, 2), (10, 6, 1)]);
        assert_eq!(whole[0].2, whole[2].2);
        assert_eq!(whole[1].2, whole[4].2, "the end of a line is no part of it");
        for buffer in 1..5 {
            assert_eq!(ids(text, buffer), whole, "{buffer}");
        }
    }

    #[test]
    fn a_line_without_end_does_not_fill_the_memory() {
        let text = format!("{}\nb\n", "x".repeat(MAX_LINE * 3));
        let mut lines = Lines::new(Cursor::new(text));
        lines.next().unwrap().unwrap();
        assert_eq!(lines.text().len(), MAX_LINE);
        let second = lines.next().unwrap().unwrap();
        assert_eq!((second.number, lines.text()), (2, &b"b"[..]));
    }
}
