//! `counterfoil import log`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::Path;
use std::process::ExitCode;

use counterfoil_events::import::{Counts, Import, Rejected, log};
use flate2::bufread::MultiGzDecoder;

use crate::Failure;
use crate::args::{Format, LogArgs};
use crate::command::import::{bar, counted};
use crate::command::{database, tenant};
use crate::settings::Settings;
use crate::steps::Events;

/// Lines that are listed; of more only the number is told.
const LISTED: usize = 1_000;

/// What a gzipped file begins with (RFC 1952, section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The import has a lane of its own: beside a running server it is just another server.
pub(crate) async fn run(settings: Settings, args: LogArgs) -> Result<ExitCode, Failure> {
    let (input, length) = open(&args.file)?;
    let database = database(&settings).await?;
    let import = Import {
        tenant: tenant(&database, args.tenant).await?,
        stream: args.stream,
        from: args.from_byte,
        to: args.to_byte.unwrap_or(u64::MAX),
    };
    let events = Events::start(&database, settings.events.clone()).await?;
    let mut listed = Vec::new();
    let bar = bar(length.unwrap_or(0));
    let (lanes, actors) = (&events.lanes, &events.actors);
    let counts = log(
        &database,
        lanes,
        actors,
        &import,
        input,
        |rejected| {
            if listed.len() < LISTED {
                listed.push(rejected);
            }
        },
        |counts| {
            // Of what is compressed the length is not known before its end.
            bar.set_length(length.unwrap_or(counts.bytes));
            bar.set_position(counts.bytes);
            bar.set_message(format!("{} stored, {} known", counts.stored, counts.known));
        },
    )
    .await?;
    bar.finish_and_clear();
    report(&counts, &listed, args.format);
    Ok(if counts.rejected == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// What is read, and how long it is, where that can be known.
fn open(path: &Path) -> Result<(Box<dyn BufRead + Send>, Option<u64>), Failure> {
    let wrong = |error: io::Error| format!("cannot read {}: {error}", path.display());
    let (mut input, length): (Box<dyn BufRead + Send>, _) = if path == Path::new("-") {
        (Box::new(BufReader::new(io::stdin())), None)
    } else {
        let file = File::open(path).map_err(wrong)?;
        let length = file.metadata().map_err(wrong)?.len();
        (Box::new(BufReader::new(file)), Some(length))
    };
    // The first two bytes may come one by one from a pipe.
    let mut begin = [0; GZIP.len()];
    let mut have = 0;
    while have < begin.len() {
        match input.read(&mut begin[have..]).map_err(wrong)? {
            0 => break,
            more => have += more,
        }
    }
    let whole = io::Cursor::new(begin[..have].to_vec()).chain(input);
    if begin == GZIP {
        let plain = BufReader::new(MultiGzDecoder::new(whole));
        return Ok((Box::new(plain), None));
    }
    Ok((Box::new(whole), length))
}

fn report(counts: &Counts, listed: &[Rejected], format: Format) {
    match format {
        Format::Text => {
            println!(
                "{} stored, {} known already, {} rejected; {}",
                counted(counts.stored, "event"),
                counts.known,
                counts.rejected,
                counted(counts.lines, "line")
            );
            for rejected in listed {
                eprintln!("line {}: {}", rejected.line, rejected.reason);
            }
            let unlisted = counts.rejected - listed.len() as u64;
            if unlisted > 0 {
                eprintln!("and {} more", counted(unlisted, "line"));
            }
        }
        Format::Json => {
            let listed: Vec<_> = listed
                .iter()
                .map(|rejected| serde_json::json!({"line": rejected.line, "reason": rejected.reason}))
                .collect();
            println!(
                "{}",
                serde_json::json!({
                    "lines": counts.lines,
                    "stored": counts.stored,
                    "known": counts.known,
                    "rejected": counts.rejected,
                    "listed": listed,
                })
            );
        }
    }
}
