//! Our side: intents over HTTP.

use crate::bench::{Bench, Pick};
use crate::error::{Error, Result};
use crate::http::{Answer, Connection, items, post_intents};
use crate::load::{Caller, Done};
use crate::postgres::Control;
use crate::random::Random;
use crate::request::{self, Request};
use crate::server::Server;

/// The most that one request may carry, and that may wait of one tenant.
const ARRAY: u32 = 2_000;

/// Where the server is, and who asks.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    pub(crate) address: String,
    pub(crate) key: String,
    pub(crate) tenant: i64,
}

impl Door {
    pub(crate) fn of(server: &Server, tenant: i64) -> Self {
        Self {
            address: server.address.clone(),
            key: server.key.clone(),
            tenant,
        }
    }
}

/// Makes the asset known and opens all accounts. Returns how many intents that took.
pub(crate) async fn prepare(door: &Door, bench: &Bench) -> Result<u64> {
    let mut connection = Connection::open(&door.address).await?;
    let mut random = Random::new();
    land(&mut connection, door, &request::first_body(&mut random), 2).await?;
    let mut opened = 0;
    while opened < bench.accounts {
        let next = (opened + ARRAY).min(bench.accounts);
        let body = request::open_body(opened..next, &mut random);
        land(&mut connection, door, &body, u64::from(next - opened)).await?;
        opened = next;
    }
    Ok(u64::from(opened) + 2)
}

async fn land(connection: &mut Connection, door: &Door, body: &[u8], count: u64) -> Result<()> {
    let mut bytes = post_intents(door.tenant, &door.address, &door.key, body.len());
    bytes.extend_from_slice(body);
    let done = read_array(&connection.call(&bytes).await?, count);
    if done.accepted == count {
        return Ok(());
    }
    Err(Error::NotOpened(
        done.first.unwrap_or_else(|| "429: too many waiting".to_owned()),
    ))
}

pub(crate) struct OurCaller {
    connection: Connection,
    request: Request,
    array: bool,
}

/// Connects all callers.
pub(crate) async fn connect(door: Door, bench: Bench, connections: usize) -> Result<Vec<OurCaller>> {
    let mut callers = Vec::with_capacity(connections);
    for _ in 0..connections {
        callers.push(OurCaller {
            connection: Connection::open(&door.address).await?,
            request: Request::new(&bench, door.tenant, &door.address, &door.key),
            array: bench.batch.is_some(),
        });
    }
    Ok(callers)
}

impl Caller for OurCaller {
    async fn call(&mut self) -> Result<Done> {
        let count = u64::try_from(self.request.intents()).unwrap_or(u64::MAX);
        let answer = self.connection.call(self.request.next()).await?;
        Ok(if self.array {
            read_array(&answer, count)
        } else {
            read_one(&answer, 1)
        })
    }
}

/// An answer that is the same for all intents of its request.
pub(crate) fn read_one(answer: &Answer<'_>, count: u64) -> Done {
    match answer.status {
        201 => Done {
            accepted: count,
            ..Done::default()
        },
        429 => Done {
            turned_away: count,
            ..Done::default()
        },
        _ => Done {
            failed: count,
            first: Some(excerpt(answer, 0)),
            ..Done::default()
        },
    }
}

pub(crate) fn read_array(answer: &Answer<'_>, count: u64) -> Done {
    let mut done = Done::default();
    for (status, at) in items(answer.body) {
        match status {
            201 => done.accepted += 1,
            429 => done.turned_away += 1,
            _ => {
                done.failed += 1;
                done.first.get_or_insert_with(|| excerpt(answer, at));
            }
        }
    }
    let found = done.accepted + done.turned_away + done.failed;
    // A problem document has one status, and it stands for all.
    if found != count || answer.body.first() != Some(&b'[') {
        return read_one(
            &Answer {
                status: if answer.status == 201 { 0 } else { answer.status },
                ..*answer
            },
            count,
        );
    }
    done
}

fn excerpt(answer: &Answer<'_>, at: usize) -> String {
    let rest = &answer.body[at..];
    let text = String::from_utf8_lossy(&rest[..rest.len().min(300)]);
    format!("{} {text}", answer.status)
}

/// Holds what the database has against what the callers saw: `opened` intents before the load, and
/// `accepted` transfers.
pub(crate) async fn verify(control: &Control, bench: &Bench, opened: u64, accepted: u64) -> Result<()> {
    let row = control
        .client
        .query_one(include_str!("../sql/totals_read.sql"), &[&request::HOT])
        .await?;
    let (entries, stubs): (i64, i64) = (row.get(0), row.get(1));
    let (total, unexplained, hot): (String, i64, String) = (row.get(2), row.get(3), row.get(4));
    let out_of_hot = if bench.pick == Pick::Hot { accepted } else { 0 };
    let hot_should = if out_of_hot == 0 {
        "0".to_owned()
    } else {
        format!("-{out_of_hot}")
    };
    for (what, found, expected) in [
        ("the number of entries", entries.to_string(), (2 * accepted).to_string()),
        (
            "the number of stubs",
            stubs.to_string(),
            (opened + accepted).to_string(),
        ),
        ("the sum of all balances", total, "0".to_owned()),
        (
            "the number of accounts whose balance is not the sum of their entries",
            unexplained.to_string(),
            "0".to_owned(),
        ),
        ("the balance of the hot account", hot, hot_should),
    ] {
        if found != expected {
            return Err(Error::Lies {
                side: "ours",
                what,
                found,
                expected,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(status: u16, body: &str, count: u64) -> (u64, u64, u64) {
        let done = read_array(
            &Answer {
                status,
                body: body.as_bytes(),
            },
            count,
        );
        (done.accepted, done.turned_away, done.failed)
    }

    #[test]
    fn items_are_counted_by_what_came_of_them() {
        assert_eq!(
            counts(
                200,
                r#"[{"status":201},{"status":429},{"status":200},{"status":409}]"#,
                4
            ),
            (1, 1, 2)
        );
    }

    #[test]
    fn an_answer_for_all_counts_for_all() {
        assert_eq!(counts(429, r#"{"status":429}"#, 500), (0, 500, 0));
        assert_eq!(counts(401, r#"{"status":401}"#, 500), (0, 0, 500));
        // Fewer items than were sent: whatever it says, it is no acceptance.
        assert_eq!(counts(201, r#"[{"status":201}]"#, 2), (0, 0, 2));
        assert_eq!(counts(200, "[]", 2), (0, 0, 2));
    }
}
