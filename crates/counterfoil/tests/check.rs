//! `counterfoil check` on a database where it takes long.

use std::process::Stdio;

use counterfoil_test::Server;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use crate::harness::{House, PATIENCE};

/// A rule that waits, as it would work, until `COMMIT` is said; and a role whose limit is shorter: it
/// is made for requests.
async fn slow() -> House {
    let house = House::new(Server::Pg15).await;
    let limit = "ALTER ROLE counterfoil_ops IN DATABASE {} SET statement_timeout = '800ms'";
    house.sql(&limit.replace("{}", &house.test.name)).await;
    house
        .sql("BEGIN; LOCK TABLE counterfoil.ledger_hold IN ACCESS EXCLUSIVE MODE")
        .await;
    house
}

#[tokio::test]
async fn a_check_takes_as_long_as_it_takes_and_says_which_rule_is_at_work() {
    let house = slow().await;
    let mut check = house.home.command(&["check"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(check.stderr.take().unwrap()).lines();
    let first = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    assert!(
        first.starts_with("checking: rule 6 of 11, check_holds; 1 s so far"),
        "{first}"
    );
    house.sql("COMMIT").await;
    let mut rest = Vec::new();
    while let Some(line) = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap() {
        rest.push(line);
    }
    assert_eq!(
        rest.last().unwrap(),
        "nothing found: ledger and counts are as they should be",
        "{rest:?}"
    );
    assert!(
        rest.iter().any(|line| line.starts_with("checking: rule 11 of 11")),
        "once it takes long, each is named: {rest:?}"
    );
    assert_eq!(check.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_check_that_is_given_a_time_gives_up_after_it() {
    let house = slow().await;
    house.home.run(&["check", "--timeout", "1"]).await.could_not_run(&[
        "did not end within 1 s",
        "rule 6 of 11, check_holds",
        "--timeout",
    ]);
    house.sql("COMMIT").await;
    house.home.ok(&["check", "--timeout", "60"]).await;
}

#[tokio::test]
async fn what_a_check_finds_is_told_as_text_and_as_one_object_with_exit_status_1() {
    let house = House::new(Server::Pg18).await;
    let tenant = house.tenant;
    let count = format!("INSERT INTO counterfoil.rollup VALUES ({tenant}, '2026-11-30 12:15Z', 3, 'web', '/')");
    house.sql(&count).await;
    let ended = house.home.run(&["check"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let told = format!("check_counts: tenant {tenant}, web / 2026-11-30T12:15Z: 0 events are stored, and 3 counted\n");
    assert_eq!(ended.stdout, told);
    let ended = house.home.run(&["check", "--format", "json"]).await;
    let object: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!((ended.code, &object["ok"]), (Some(1), &false.into()));
    let expected = serde_json::json!([{
        "rule": "check_counts",
        "tenant": tenant,
        "subject": "web / 2026-11-30T12:15Z",
        "detail": "0 events are stored, and 3 counted",
    }]);
    assert_eq!(object["violations"], expected);
    assert_eq!(object["rules"].as_array().unwrap().len(), 11);
}
