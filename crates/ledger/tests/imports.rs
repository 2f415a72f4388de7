//! The import of a journal through real lanes.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use counterfoil_intent::Lanes;
use counterfoil_ledger::Decimal;
use counterfoil_ledger::import::{Counts, journal};
use counterfoil_ledger::read;
use counterfoil_test::Server;
use uuid::Uuid;

use crate::database::Ledger;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

async fn import(ledger: &Ledger, run: u128) -> Counts {
    import_over(&ledger.lanes, ledger, run).await
}

async fn import_over(lanes: &Lanes, ledger: &Ledger, run: u128) -> Counts {
    let file = File::open(data("journal.csv")).unwrap();
    let submit = async |intents| lanes.submit(intents).await;
    let no_errors = || -> std::io::Result<std::io::Sink> { panic!("there are no errors") };
    journal(
        &ledger.kinds,
        ledger.tenant,
        Uuid::from_u128(run),
        file,
        no_errors,
        submit,
        |_| (),
    )
    .await
    .unwrap()
}

async fn balances(ledger: &Ledger) -> BTreeMap<String, (String, Decimal)> {
    let tx = ledger.app().await;
    let mut out = BTreeMap::new();
    let mut after: Option<String> = None;
    loop {
        let page = read::accounts(&ledger.scope(), &tx, "", after.as_deref(), 7)
            .await
            .unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.code.clone());
        for view in page {
            let posted = Decimal::parse(&view.posted.to_string()).unwrap();
            out.insert(view.code, (view.asset.to_string(), posted));
        }
    }
    tx.rollback().await;
    out
}

fn expected() -> BTreeMap<String, (String, Decimal)> {
    let mut out = BTreeMap::new();
    let text = std::fs::read_to_string(data("journal_balances.csv")).unwrap();
    for line in text.lines().skip(1) {
        let fields: Vec<_> = line.split(',').collect();
        out.insert(
            fields[0].to_owned(),
            (fields[1].to_owned(), Decimal::parse(fields[2]).unwrap()),
        );
    }
    out
}

#[tokio::test]
async fn the_journal_imports_twice_and_the_second_time_changes_nothing() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        let counts = import(&ledger, 1).await;
        assert_eq!(
            (counts.rows, counts.imported, counts.known, counts.failed),
            (6_070, 2_136, 0, 0)
        );
        assert_eq!(balances(&ledger).await, expected());
        ledger.assert_whole().await;

        let counts = import(&ledger, 2).await;
        assert_eq!(
            (counts.imported, counts.known, counts.assets, counts.accounts),
            (0, 2_136, 0, 0)
        );
        // In a year, when no stub is left, the source keys still know.
        ledger.outside("DELETE FROM counterfoil.stub").await;
        assert_eq!(import(&ledger, 1).await.known, 2_136);
        assert_eq!(
            ledger.count("SELECT count(*) FROM counterfoil.ledger_transfer").await,
            2_136
        );
        assert_eq!(balances(&ledger).await, expected());
        ledger.assert_whole().await;
    }
}

#[tokio::test]
async fn two_imports_at_once_over_two_servers_import_each_transfer_once() {
    let ledger = Ledger::new(Server::Pg15).await;
    let other = ledger.other_lanes().await;
    let (one, two) = tokio::join!(import(&ledger, 1), import_over(&other, &ledger, 2));
    assert_eq!((one.imported + two.imported, one.known + two.known), (2_136, 2_136));
    assert_eq!(balances(&ledger).await, expected());
    ledger.assert_whole().await;
}
