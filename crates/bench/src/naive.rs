//! The naive side: one function call per transaction, straight on PostgreSQL.

use tokio_postgres::{Client, Statement};

use crate::bench::{Bench, Pick};
use crate::error::{Error, Result};
use crate::load::{Caller, Done};
use crate::postgres::{Address, Control};
use crate::random::Random;

/// Enough for every transfer of a long run.
const OPENING: i64 = 1_000_000_000_000;

/// Schema and accounts. The hot account has the highest id: it is updated last, and so locked for
/// the shorter time.
pub(crate) async fn prepare(control: &Control, bench: &Bench, lean: bool) -> Result<()> {
    control
        .client
        .batch_execute(include_str!("../naive/schema.sql"))
        .await?;
    if !lean {
        control
            .client
            .batch_execute(include_str!("../naive/careful.sql"))
            .await?;
    }
    let fill = include_str!("../naive/account_fill.sql");
    control.client.execute(fill, &[&hot(bench), &OPENING]).await?;
    Ok(())
}

fn hot(bench: &Bench) -> i64 {
    i64::from(bench.accounts) + 1
}

pub(crate) struct NaiveCaller {
    client: Client,
    call: Statement,
    bench: Bench,
    random: Random,
}

/// Connects all callers and prepares their statement.
pub(crate) async fn connect(address: Address, bench: Bench, connections: usize) -> Result<Vec<NaiveCaller>> {
    let mut callers = Vec::with_capacity(connections);
    for _ in 0..connections {
        let client = address.connect().await?;
        let call = client.prepare(include_str!("../naive/transfer_call.sql")).await?;
        callers.push(NaiveCaller {
            client,
            call,
            bench,
            random: Random::new(),
        });
    }
    Ok(callers)
}

impl Caller for NaiveCaller {
    async fn call(&mut self) -> Result<Done> {
        let (from, to) = match self.bench.pick {
            Pick::Hot => (hot(&self.bench), i64::from(self.random.below(self.bench.accounts)) + 1),
            Pick::Random => {
                let (from, to) = self.random.pair(self.bench.accounts);
                (i64::from(from) + 1, i64::from(to) + 1)
            }
        };
        self.client.execute(&self.call, &[&from, &to, &1_i64]).await?;
        Ok(Done::ONE)
    }
}

/// Holds what the database has against what the callers saw.
pub(crate) async fn verify(control: &Control, bench: &Bench, accepted: u64) -> Result<()> {
    let row = control
        .client
        .query_one(include_str!("../naive/totals_read.sql"), &[&hot(bench)])
        .await?;
    let (transfers, total, hot_balance): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    let accepted = i64::try_from(accepted).unwrap_or(i64::MAX);
    let out_of_hot = if bench.pick == Pick::Hot { accepted } else { 0 };
    for (what, found, expected) in [
        ("the number of transfers", transfers, accepted),
        ("the sum of all balances", total, OPENING * hot(bench)),
        ("the balance of the hot account", hot_balance, OPENING - out_of_hot),
    ] {
        if found != expected {
            return Err(Error::Lies {
                side: "naive",
                what,
                found: found.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    Ok(())
}
