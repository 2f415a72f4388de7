//! Batches that overlap: loaded without locks, and one while those before it are under way.

use std::time::{Duration, Instant};

use counterfoil_intent::{Generations, Lanes, Options};
use counterfoil_test::Server;
use serde_json::{Value, json};

use crate::database::{Ledger, came, fresh};

const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";

/// Transactions that have written something.
const WRITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE backend_xid IS NOT NULL AND datname = current_database()";

/// One lane of its own settings, which waits for rows as long as a story takes.
async fn lanes(ledger: &Ledger, batch: usize) -> Lanes {
    let options = Options {
        lanes: 1,
        batch,
        make_timeout: Duration::from_secs(30),
        ..Options::default()
    };
    let generations = Generations::load(&ledger.db).await.unwrap();
    Lanes::start(ledger.db.clone(), ledger.kinds.clone(), generations, options)
}

fn detours(lanes: &Lanes) -> u64 {
    let mut text = String::new();
    lanes.metrics().render(&mut text);
    text.lines()
        .filter(|line| line.starts_with("counterfoil_lane_detours_total{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

async fn until(ledger: &Ledger, sql: &str, count: i64) {
    let start = Instant::now();
    while ledger.count(sql).await < count {
        assert!(start.elapsed() < Duration::from_secs(40), "never {count}: {sql}");
        tokio::task::yield_now().await;
    }
}

fn pay(ledger: &Ledger, from: &str, to: &str, amount: &str) -> counterfoil_intent::Intent {
    ledger.intent("ledger.transfer", &json!({"from": from, "to": to, "amount": amount}))
}

/// Five of `poor` go to `rich`, both with nothing posted, while another server changes the floor of
/// `poor`: what the lane decides by is loaded before that change is there, and written back after it.
/// Returns what came of it, and how many detours it took.
async fn floor_changes(server: Server, from: Option<&str>, to: &str) -> (String, u64) {
    let ledger = Ledger::new(server).await;
    ledger.usd(&[("poor", from), ("rich", None)]).await;
    let lanes = lanes(&ledger, 2_000).await;
    ledger
        .outside(&format!(
            "BEGIN; UPDATE counterfoil.ledger_balance AS b SET floor = {to}, version = b.version + 1
               FROM counterfoil.ledger_account AS a WHERE a.id = b.account_id AND a.code = 'poor'"
        ))
        .await;
    let release = async {
        until(&ledger, WAITING, 1).await;
        ledger.outside("COMMIT").await;
    };
    let (landed, ()) = tokio::join!(lanes.submit(vec![pay(&ledger, "poor", "rich", "5")]), release);
    ledger.assert_whole().await;
    (came(&landed[0]).code().to_owned(), detours(&lanes))
}

/// The transfer is accepted by what was loaded, and waits in its UPDATE. No lock tells that the floor is
/// another one by then: the version does.
#[tokio::test]
async fn a_row_changed_after_it_was_loaded_is_not_overwritten() {
    for server in Server::DIRECT {
        assert_eq!(
            floor_changes(server, None, "0").await,
            ("floor_crossed".to_owned(), 0),
            "{server:?}"
        );
    }
}

/// A refusal changes no account, so no UPDATE would find out that what it was decided by has changed.
#[tokio::test]
async fn a_refusal_is_decided_by_rows_that_stay_as_they_were_until_its_stub_is_there() {
    for server in Server::DIRECT {
        assert_eq!(
            floor_changes(server, Some("0"), "NULL").await.0,
            "accepted",
            "{server:?}"
        );
    }
}

/// The first of four batches waits for another server's stub of its key; those behind it are applied
/// on its rows, and the second has only its update left to send. Then it turns out that the first has no effect here.
#[tokio::test]
async fn batches_behind_one_that_fails_begin_again_and_keep_their_order() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("till", Some("0")), ("bank", None)]).await;
        let lanes = lanes(&ledger, 1).await;
        let taken = fresh();
        let theirs = ledger.intent_of(
            ledger.tenant,
            &taken,
            "ledger.transfer",
            &json!({"from": "bank", "to": "till", "amount": "7"}),
        );
        ledger
            .outside(&format!(
                "BEGIN; INSERT INTO counterfoil.stub
                 SELECT {}, decode('{}', 'hex'), gen, 'ledger.asset', 1, false, '\\x00', '{{}}', now()
                   FROM counterfoil.stub_generation WHERE opened_at IS NOT NULL ORDER BY gen DESC LIMIT 1",
                ledger.tenant.0,
                theirs
                    .key
                    .to_bytes()
                    .iter()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<String>(),
            ))
            .await;
        let mut intents = vec![theirs];
        // The second is accepted on the money of the first, which never comes.
        for (from, to, amount) in [("till", "bank", "7"), ("bank", "till", "2"), ("till", "bank", "1")] {
            intents.push(pay(&ledger, from, to, amount));
        }
        let release = async {
            until(&ledger, WAITING, 1).await;
            // The other server, the first, and the second, which has inserted what goes with the rows of the first.
            until(&ledger, WRITING, 3).await;
            ledger.outside("COMMIT").await;
        };
        let (answers, ()) = tokio::join!(lanes.submit(intents), release);
        assert!(
            matches!(answers[0], counterfoil_intent::Answer::Mismatch { .. }),
            "{:?}",
            answers[0]
        );
        let codes: Vec<_> = answers[1..]
            .iter()
            .map(|answer| came(answer).code().to_owned())
            .collect();
        assert_eq!(codes, ["floor_crossed", "accepted", "accepted"], "{server:?}");
        assert_eq!(ledger.figures("till").await.0, "1.00");
        ledger.assert_whole().await;
    }
}

/// Three hundred transfers of one account in batches of seven, three of them under way at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_overlap_land_in_the_order_in_which_they_were_submitted() {
    for server in Server::ALL {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("hot", Some("0")), ("bank", None)]).await;
        let lanes = lanes(&ledger, 7).await;
        // Every second one spends what the one before brought: in any other order one is refused.
        let intents = (0..300).map(|n| match n % 2 {
            0 => pay(&ledger, "bank", "hot", "1"),
            _ => pay(&ledger, "hot", "bank", "1"),
        });
        for (n, answer) in lanes.submit(intents.collect()).await.iter().enumerate() {
            assert_eq!(came(answer).code(), "accepted", "the transfer {n} on {server:?}");
        }
        assert_eq!(detours(&lanes), 0);
        ledger.assert_whole().await;
    }
}

/// The same over two servers, where every batch may find its rows changed by the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_that_overlap_on_the_same_rows_lose_nothing() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("a", None), ("b", None), ("c", None)]).await;
        let (one, two) = (ledger.other_lanes().await, ledger.other_lanes().await);
        let crowd = |accounts: [&str; 3]| {
            (0..400)
                .map(|n| pay(&ledger, accounts[n % 3], accounts[(n + 1) % 3], "1"))
                .collect::<Vec<_>>()
        };
        let (ours, theirs) = tokio::join!(one.submit(crowd(["a", "b", "c"])), two.submit(crowd(["c", "b", "a"])));
        for answer in ours.iter().chain(&theirs) {
            came(answer).ok();
        }
        let transfers = ledger.count("SELECT count(*) FROM counterfoil.ledger_transfer").await;
        assert_eq!(transfers, 800);
        ledger.assert_whole().await;
    }
}

/// A hold lands in one batch; the next one, under way at the same time, spends what it left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_seen_by_the_batch_that_was_loaded_before_it_was_there() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("till", Some("0")), ("bank", None)]).await;
        ledger.pay("bank", "till", "10").await.ok();
        let lanes = lanes(&ledger, 1).await;
        let mut intents = Vec::new();
        for _ in 0..5 {
            let hold: Value = json!({"account": "till", "amount": "2", "expires_at": "2999-01-01T00:00:00Z"});
            intents.push(ledger.intent("ledger.hold", &hold));
            intents.push(pay(&ledger, "till", "bank", "2"));
        }
        let answers = lanes.submit(intents).await;
        let accepted = answers.iter().filter(|answer| came(answer).code() == "accepted");
        assert_eq!(accepted.count(), 5, "ten in the till, two at a time");
        assert_eq!(
            ledger.figures("till").await,
            ("6.00".into(), "6.00".into(), "0.00".into())
        );
        ledger.assert_whole().await;
    }
}
