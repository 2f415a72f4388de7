//! Events: ours over HTTP, and what they are compared with.

use tokio_postgres::{Client, CopyInSink};

use crate::bench::Bench;
use crate::error::{Error, Result};
use crate::http::{Connection, get, items, post};
use crate::load::{Caller, Done};
use crate::ours::{Door, read_array, read_one};
use crate::postgres::{Address, Control};
use crate::random::{KEY_LEN, Random, now_millis, write_digits, write_key};

/// Digits of a subject's number, and of an actor's.
const DIGITS: usize = 6;

/// How many actors there are.
const ACTORS: u32 = 50_000;

/// Rows of one COPY, and so of one transaction: as many as a request of ours has events.
const ROWS: usize = 1_000;

/// Where in the bytes an event's changing parts lie.
#[derive(Debug, Clone, Copy)]
struct Places {
    id: usize,
    subject: usize,
    actor: usize,
}

/// Bytes in which only ids, subjects and actors are written over.
#[derive(Debug)]
pub(crate) struct Events {
    bytes: Vec<u8>,
    places: Vec<Places>,
    subjects: u32,
    random: Random,
}

impl Events {
    fn new(bench: &Bench, head: Vec<u8>, count: usize, one: impl Fn(&mut Vec<u8>) -> Places) -> Self {
        let mut bytes = head;
        let places = (0..count).map(|_| one(&mut bytes)).collect();
        Self {
            bytes,
            places,
            subjects: bench.accounts,
            random: Random::new(),
        }
    }

    fn next(&mut self) -> &[u8] {
        let millis = now_millis();
        for places in &self.places {
            write_key(
                &mut self.bytes[places.id..places.id + KEY_LEN],
                millis,
                &mut self.random,
            );
            let (subject, actor) = (self.random.below(self.subjects), self.random.below(ACTORS));
            write_digits(&mut self.bytes[places.subject..places.subject + DIGITS], subject);
            write_digits(&mut self.bytes[places.actor..places.actor + DIGITS], actor);
        }
        &self.bytes
    }
}

fn put(bytes: &mut Vec<u8>, text: &str) -> usize {
    bytes.extend_from_slice(text.as_bytes());
    bytes.len()
}

/// An event as a line of JSON.
fn line(bytes: &mut Vec<u8>) -> Places {
    let subject = put(bytes, "{\"stream\":\"web\",\"subject\":\"/page/");
    put(bytes, "000000");
    let id = put(bytes, "\",\"id\":\"");
    put(bytes, &"-".repeat(KEY_LEN));
    let actor = put(bytes, "\",\"actor\":\"visitor-");
    put(bytes, "000000\"}\n");
    Places { id, subject, actor }
}

/// The same event as a row of COPY. The hash of its actor is a number of as many digits as there is room for.
fn row(bytes: &mut Vec<u8>) -> Places {
    let actor = put(bytes, "1\t2026-01-01 00:00:00.123+00\t4815162342");
    put(bytes, "000000");
    let id = put(bytes, "\t");
    put(bytes, &"-".repeat(KEY_LEN));
    let subject = put(bytes, "\tweb\t/page/");
    put(bytes, "000000\t\\N\n");
    Places { id, subject, actor }
}

/// What ours is compared with.
pub(crate) enum NaiveCaller {
    /// COPY of the same rows into a table with the same key, on PostgreSQL itself.
    Copy { client: Client, events: Box<Events> },
    /// The server's own answer to a question about nothing.
    Health { connection: Connection, request: Vec<u8> },
}

/// Connects all callers.
pub(crate) async fn naive(address: Address, door: Door, bench: Bench) -> Result<Vec<NaiveCaller>> {
    let mut callers = Vec::with_capacity(bench.naive);
    for _ in 0..bench.naive {
        callers.push(if bench.batch.is_some() {
            NaiveCaller::Copy {
                client: address.connect().await?,
                events: Box::new(Events::new(&bench, Vec::new(), ROWS, row)),
            }
        } else {
            NaiveCaller::Health {
                connection: Connection::open(&door.address).await?,
                request: get("/healthz", &door.address),
            }
        });
    }
    Ok(callers)
}

/// The table that COPY fills.
pub(crate) async fn prepare(control: &Control) -> Result<()> {
    let schema = include_str!("../naive/events.sql");
    control.client.batch_execute(schema).await?;
    Ok(())
}

impl Caller for NaiveCaller {
    async fn call(&mut self) -> Result<Done> {
        match self {
            Self::Copy { client, events } => {
                let sink: CopyInSink<bytes::Bytes> = client.copy_in("COPY naive.event FROM STDIN").await?;
                let mut sink = std::pin::pin!(sink);
                let rows = bytes::Bytes::copy_from_slice(events.next());
                futures_util::SinkExt::send(&mut sink, rows).await?;
                let accepted = sink.finish().await?;
                Ok(Done {
                    accepted,
                    ..Done::default()
                })
            }
            Self::Health { connection, request } => {
                let answer = connection.call(request).await?;
                Ok(if answer.status == 200 {
                    Done::ONE
                } else {
                    read_one(&answer, 1)
                })
            }
        }
    }
}

pub(crate) struct OurCaller {
    connection: Connection,
    events: Events,
    lines: bool,
}

/// Connects all callers.
pub(crate) async fn ours(door: Door, bench: Bench, connections: usize) -> Result<Vec<OurCaller>> {
    let count = bench.batch.unwrap_or(1);
    let mut sample = Vec::new();
    line(&mut sample);
    // JSON has no use for the end of the line of a single event, and takes it for white space.
    let media_type = match bench.batch {
        Some(_) => "application/x-ndjson",
        None => "application/json",
    };
    let mut callers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let path = format!("/v1/tenants/{}/events", door.tenant);
        let head = post(&path, &door.address, &door.key, media_type, count * sample.len());
        callers.push(OurCaller {
            connection: Connection::open(&door.address).await?,
            events: Events::new(&bench, head, count, line),
            lines: bench.batch.is_some(),
        });
    }
    Ok(callers)
}

impl Caller for OurCaller {
    async fn call(&mut self) -> Result<Done> {
        let count = u64::try_from(self.events.places.len()).unwrap_or(u64::MAX);
        let answer = self.connection.call(self.events.next()).await?;
        if !self.lines {
            return Ok(read_one(&answer, 1));
        }
        let accepted = items(answer.body).filter(|(status, _)| *status == 201).count();
        Ok(if u64::try_from(accepted) == Ok(count) {
            Done {
                accepted: count,
                ..Done::default()
            }
        } else {
            read_array(&answer, count)
        })
    }
}

/// Holds what the database has against what the callers saw.
pub(crate) async fn verify(control: &Control, accepted: u64) -> Result<()> {
    let row = control
        .client
        .query_one(include_str!("../sql/events_read.sql"), &[])
        .await?;
    let accepted = i64::try_from(accepted).unwrap_or(i64::MAX);
    for (what, found) in [
        ("the number of events", row.get(0)),
        ("the sum of all counts", row.get(1)),
    ] {
        let found: i64 = found;
        if found != accepted {
            return Err(Error::Lies {
                side: "our",
                what,
                found: found.to_string(),
                expected: accepted.to_string(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn lines_and_rows_are_of_the_same_events_and_no_id_comes_twice() {
        let bench = Bench::named("events-batch").unwrap();
        let mut events = Events::new(&bench, Vec::new(), 3, line);
        let mut ids = std::collections::BTreeSet::new();
        for _ in 0..2 {
            for line in std::str::from_utf8(events.next()).unwrap().lines() {
                let event: Value = serde_json::from_str(line).unwrap();
                assert_eq!(event["stream"], "web");
                assert!(event["subject"].as_str().unwrap().starts_with("/page/000"));
                assert!(ids.insert(event["id"].as_str().unwrap().to_owned()));
            }
        }
        assert_eq!(ids.len(), 6);
        let mut rows = Events::new(&bench, Vec::new(), 2, row);
        for row in std::str::from_utf8(rows.next()).unwrap().lines() {
            let fields: Vec<_> = row.split('\t').collect();
            assert_eq!((fields.len(), fields[4], fields[6]), (7, "web", "\\N"));
            assert!(uuid::Uuid::try_parse(fields[3]).is_ok() && fields[2].parse::<i64>().is_ok());
        }
    }
}
