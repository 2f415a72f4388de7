//! Access logs, imported by the command, and what is then reported.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use counterfoil_test::Server;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use crate::harness::{Ended, House};
use crate::running::root;

const STORED: &str = "SELECT count(*) FROM counterfoil.event";

/// The command, for the tenant of the house.
async fn import(house: &House, file: &Path, more: &[&str]) -> Ended {
    let (file, tenant) = (file.display().to_string(), house.tenant.to_string());
    let args = [
        "import", "log", &file, "--stream", "web", "--tenant", &tenant, "--format", "json",
    ];
    house.home.run(&[&args[..], more].concat()).await
}

/// Lines, stored, known, rejected.
#[track_caller]
fn counts(ended: &Ended) -> [u64; 4] {
    let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    ["lines", "stored", "known", "rejected"].map(|name| json[name].as_u64().unwrap())
}

async fn report(house: &House, args: &[&str]) -> String {
    let tenant = house.tenant.to_string();
    let all = [
        &["report", "--stream", "web", "--tenant", &tenant, "--format", "csv"][..],
        args,
    ]
    .concat();
    house.home.ok(&all).await
}

/// The numbers of a report, one a line.
fn numbers(csv: &str) -> Vec<u64> {
    let rows = csv.lines().skip(1);
    rows.map(|row| row.rsplit(',').next().unwrap().parse().unwrap())
        .collect()
}

#[tokio::test]
async fn case_1_the_log_is_counted_by_day_zone_address_and_path_and_again_changes_nothing() {
    for server in Server::DIRECT {
        let house = House::new(server).await;
        let file = root().join("data/apache_combined.log");
        let first = import(&house, &file, &[]).await;
        assert_eq!(
            (first.code, counts(&first)),
            (Some(1), [10_000, 9_999, 0, 1]),
            "{first:?}"
        );
        let listed: Value = serde_json::from_str(&first.stdout).unwrap();
        assert_eq!(
            listed["listed"],
            serde_json::json!([{"line": 8_899, "reason": "the line ends within the agent"}])
        );
        for again in [false, true] {
            if again {
                let second = import(&house, &file, &[]).await;
                assert_eq!(
                    (second.code, counts(&second)),
                    (Some(1), [10_000, 0, 9_999, 1]),
                    "{second:?}"
                );
            }
            assert_eq!(
                numbers(&report(&house, &["--zone", "UTC"]).await),
                [1_632, 2_893, 2_896, 2_578]
            );
            let taipei = report(&house, &["--grain", "day", "--zone", "Asia/Taipei"]).await;
            assert_eq!(
                taipei,
                "start,count\n2015-05-17T00:00:00+08:00,663\n2015-05-18T00:00:00+08:00,2906\n\
                 2015-05-19T00:00:00+08:00,2881\n2015-05-20T00:00:00+08:00,2876\n2015-05-21T00:00:00+08:00,673\n"
            );
            let icon = report(&house, &["--grain", "month", "--subject", "/favicon.ico"]).await;
            assert_eq!(numbers(&icon), [807]);
            let top = report(&house, &["--top", "2"]).await;
            assert!(top.starts_with("subject,count\n/favicon.ico,807\n"), "{top}");
            let one_day = report(
                &house,
                &["--zone", "Asia/Taipei", "--from", "2015-05-18", "--to", "2015-05-19"],
            )
            .await;
            assert_eq!(numbers(&one_day), [2_906]);
            let addresses = "SELECT count(DISTINCT actor) FROM counterfoil.event";
            assert_eq!(house.number(addresses).await, 1_753);
            assert_eq!(house.number(STORED).await, 9_999);
        }
        // Of the address itself nothing is kept.
        let kept = "SELECT count(*) FROM counterfoil.event AS e WHERE e::text LIKE '%83.149.9.216%'";
        assert_eq!(house.number(kept).await, 0);
    }
}

/// Lines like each other stand on both sides of the cut: which of them is which is told from the beginning.
#[tokio::test]
async fn case_1_two_processes_share_a_file_whose_repeats_straddle_the_cut() {
    let house = House::new(Server::Pg18).await;
    let line = |path: &str, minute: u32| {
        format!("203.0.113.9 - - [17/May/2015:10:{minute:02}:03 +0000] \"GET {path} HTTP/1.1\" 200 1 \"-\" \"a\"\n")
    };
    let mut text = String::new();
    for round in 0..600 {
        text.push_str(&line("/same", 0));
        text.push_str(&line(&format!("/{round}"), round % 60));
    }
    let file = house.home.write("access.log", &text);
    // In the middle of a line, which belongs to where it begins.
    let cut = (text.len() / 2 + 17).to_string();
    let (before, behind) = (["--to-byte", cut.as_str()], ["--from-byte", cut.as_str()]);
    let (one, two) = tokio::join!(import(&house, &file, &before), import(&house, &file, &behind));
    let ([one_lines, one_stored, ..], [two_lines, two_stored, ..]) = (counts(&one), counts(&two));
    assert_eq!(
        (one_lines + two_lines, one_stored + two_stored),
        (1_200, 1_200),
        "{one:?} {two:?}"
    );
    assert!(one_lines > 500 && two_lines > 500);
    let whole = import(&house, &file, &[]).await;
    assert_eq!(
        (whole.code, counts(&whole)),
        (Some(0), [1_200, 0, 1_200, 0]),
        "{whole:?}"
    );
    assert_eq!(numbers(&report(&house, &["--subject", "/same"]).await), [600]);
    assert_eq!(house.number(STORED).await, 1_200);
}

#[tokio::test]
async fn a_log_is_read_from_a_pipe_and_gzipped_with_the_same_events() {
    let house = House::new(Server::Pg15).await;
    let text = std::fs::read(root().join("data/apache_combined.log")).unwrap();
    let text: Vec<u8> = text
        .split_inclusive(|byte| *byte == b'\n')
        .take(1_000)
        .flatten()
        .copied()
        .collect();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&text).unwrap();
    let packed = packed.finish().unwrap();
    let file = house.home.dir.join("access.log.gz");
    std::fs::write(&file, &packed).unwrap();
    let first = import(&house, &file, &[]).await;
    assert_eq!(
        (first.code, counts(&first)),
        (Some(0), [1_000, 1_000, 0, 0]),
        "{first:?}"
    );
    for input in [text, packed] {
        let tenant = house.tenant.to_string();
        let args = ["import", "log", "-", "--stream", "web", "--tenant", &tenant];
        let mut command = house.home.command(&args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(&input).await.unwrap();
        let output = child.wait_with_output().await.unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        assert_eq!(told, "0 events stored, 1000 known already, 0 rejected; 1000 lines\n");
    }
}

#[tokio::test]
async fn a_log_that_is_none_is_told_line_by_line_and_nothing_is_stored() {
    let house = House::new(Server::Pg15).await;
    let file = house.home.write("notes.txt", "dear diary\n\nnothing happened\n");
    let ended = import(&house, &file, &[]).await;
    assert_eq!((ended.code, counts(&ended)), (Some(1), [2, 0, 0, 2]), "{ended:?}");
    assert_eq!(house.number(STORED).await, 0);
    import(&house, Path::new("/nowhere.log"), &[])
        .await
        .could_not_run(&["/nowhere.log"]);
    for (args, says) in [
        (["--zone", "Taipei"], "is no time zone"),
        (["--from", "yesterday"], "--from takes a moment or a day"),
    ] {
        let tenant = house.tenant.to_string();
        let all = [&["report", "--stream", "web", "--tenant", &tenant][..], &args].concat();
        house.home.run(&all).await.could_not_run(&[says]);
    }
    assert_eq!(report(&house, &[]).await, "start,count\n");
}
