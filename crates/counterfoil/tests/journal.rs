//! `counterfoil import journal`.

use std::collections::BTreeMap;
use std::path::Path;

use counterfoil_test::Server;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::Value;
use tokio::time::timeout;

use crate::harness::{Ended, Home, House, PATIENCE, data, seed};

/// Account to asset and balance, whatever number of decimals it was written with.
type Balances = BTreeMap<String, (String, String)>;

fn plain(amount: &str) -> String {
    match amount.split_once('.') {
        Some(_) => amount.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => amount.to_owned(),
    }
}

fn balances(csv: &str) -> Balances {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let rows = reader.records().map(|row| {
        let row = row.unwrap();
        (row[0].to_owned(), (row[1].to_owned(), plain(&row[2])))
    });
    rows.collect()
}

/// As the accounting program computed them.
fn expected() -> Balances {
    balances(&std::fs::read_to_string(data("journal_balances.csv")).unwrap())
}

async fn import(home: &Home, tenant: &str, file: &Path) -> Ended {
    let file = file.display().to_string();
    home.run(&["import", "journal", &file, "--tenant", tenant, "--format", "json"])
        .await
}

/// What it counted.
#[track_caller]
fn counts(ended: &Ended) -> [u64; 4] {
    let json: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    ["rows", "imported", "known", "rejected"].map(|name| json[name].as_u64().unwrap())
}

async fn accounts(house: &House) -> String {
    house
        .home
        .ok(&["accounts", "--format", "csv", "--tenant", &house.tenant.to_string()])
        .await
}

#[tokio::test]
async fn a_journal_imported_twice_changes_nothing_the_second_time_and_balances_to_the_cent() {
    for server in Server::DIRECT {
        let house = House::new(server).await;
        let tenant = house.tenant.to_string();
        let first = import(&house.home, &tenant, &data("journal.csv")).await;
        assert_eq!(
            (first.code, counts(&first)),
            (Some(0), [6_070, 2_136, 0, 0]),
            "{first:?}"
        );
        let after_first = accounts(&house).await;
        assert_eq!(balances(&after_first), expected());
        assert_eq!((house.transfers().await, house.entries().await), (2_136, 6_070));
        let second = import(&house.home, &tenant, &data("journal.csv")).await;
        assert_eq!(
            (second.code, counts(&second)),
            (Some(0), [6_070, 0, 2_136, 0]),
            "{second:?}"
        );
        assert_eq!(accounts(&house).await, after_first, "not even a version");
        assert_eq!((house.transfers().await, house.entries().await), (2_136, 6_070));
        house.check().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_killed_midway_and_run_again_gives_the_same() {
    let mut rng = StdRng::seed_from_u64(seed());
    let house = House::new(Server::Pg18).await;
    let tenant = house.tenant.to_string();
    let proxy = house.test.proxy().await;
    let home = house.home_behind(&proxy);
    let file = data("journal.csv").display().to_string();
    let mut had = 0;
    for _ in 0..5 {
        // Killed inside of a batch of its own: in front of a COMMIT that arrives or does not.
        let (nth, arrives) = (rng.random_range(1..=6), rng.random_bool(0.5));
        let commit = proxy.lane().hold_commit(nth);
        let mut importing = home
            .command(&["import", "journal", &file, "--tenant", &tenant])
            .spawn()
            .unwrap();
        timeout(PATIENCE, commit.reached())
            .await
            .expect("it comes to its COMMIT");
        importing.kill().await.unwrap();
        if !arrives {
            proxy.cut_all();
        }
        drop(commit);
        let has = house.transfers().await;
        println!(
            "killed at COMMIT {nth}, which {}; {has} transfers",
            if arrives { "arrives" } else { "is lost" }
        );
        assert!(has >= had, "what is imported stays");
        had = has;
    }
    let last = import(&home, &tenant, &data("journal.csv")).await;
    let [rows, imported, known, rejected] = counts(&last);
    assert_eq!(
        (last.code, rows, imported + known, rejected),
        (Some(0), 6_070, 2_136, 0),
        "{last:?}"
    );
    assert!(known > 0 && imported > 0, "{last:?}");
    assert_eq!(balances(&accounts(&house).await), expected());
    assert_eq!((house.transfers().await, house.entries().await), (2_136, 6_070));
    house.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_imports_of_one_journal_at_once_beside_a_server_import_it_once() {
    let house = House::new(Server::Pg15).await;
    let up = house.up().await;
    let tenant = house.tenant.to_string();
    let file = data("journal.csv");
    let (one, other) = tokio::join!(import(&house.home, &tenant, &file), import(&up.home, &tenant, &file));
    let ([rows, one_imported, one_known, none], [_, other_imported, other_known, zero]) =
        (counts(&one), counts(&other));
    assert_eq!(
        (one.code, other.code, rows, none, zero),
        (Some(0), Some(0), 6_070, 0, 0),
        "{one:?} {other:?}"
    );
    assert_eq!((one_imported + other_imported, one_known + other_known), (2_136, 2_136));
    assert_eq!(balances(&accounts(&house).await), expected());
    house.check().await;
}

const HEADER: &str = "key,date,description,account,asset,amount\r\n";

#[tokio::test]
async fn rows_that_cannot_be_imported_go_to_a_file_which_mended_imports() {
    let house = House::new(Server::Pg18).await;
    let tenant = house.tenant.to_string();
    let rows = [
        "good-1,2026-01-01,Opening,cash,USD,100.00",
        "good-1,2026-01-01,Opening,equity,USD,-100.00",
        "bad-amount,2026-01-02,\"Coffee, black\",cafe,USD,1e3",
        "bad-amount,2026-01-02,\"Coffee, black\",cash,USD,-3.50",
        "bad-date,2026-02-30,Rent,rent,USD,40",
        "bad-date,2026-02-30,Rent,cash,USD,-40",
        "unbalanced,2026-01-03,Books,books,USD,10",
        "unbalanced,2026-01-03,Books,cash,USD,-9.99",
        "short,2026-01-04,Tea,tea,USD",
        "good-2,2026-01-05,Sale,cash,USD,20",
        "good-2,2026-01-05,Sale,income,USD,-20",
    ];
    let file = house.home.write(
        "books.csv",
        &rows.iter().fold(HEADER.to_owned(), |text, row| text + row + "\r\n"),
    );
    let first = import(&house.home, &tenant, &file).await;
    assert_eq!((first.code, counts(&first)), (Some(1), [11, 2, 0, 4]), "{first:?}");
    let rejected = house.home.dir.join("books.rejected.csv");
    assert!(
        first.stderr.contains(&rejected.display().to_string()) && first.stderr.contains("mend"),
        "{first:?}"
    );
    let text = std::fs::read_to_string(&rejected).unwrap();
    for says in ["amount_invalid", "date_invalid", "legs_unbalanced", "row_invalid"] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert_eq!(text.lines().count(), 1 + 7, "{text}");
    assert!(!text.contains("good-"), "{text}");

    // What was rejected is not written over by whoever tries again.
    let again = import(&house.home, &tenant, &file).await;
    assert!(
        again.stderr.contains("mend") && again.stderr.contains("books.rejected.2.csv"),
        "{again:?}"
    );
    assert_eq!(std::fs::read_to_string(&rejected).unwrap(), text);
    assert_eq!(
        std::fs::read_to_string(house.home.dir.join("books.rejected.2.csv")).unwrap(),
        text
    );
    let named = rejected.display().to_string();
    let args = [
        "import",
        "journal",
        &file.display().to_string(),
        "--tenant",
        &tenant,
        "--rejected",
        &named,
    ];
    house
        .home
        .run(&args)
        .await
        .could_not_run(&["books.rejected.csv is there", "--rejected"]);

    // Mended in place, the column with the reasons still there; one of them is given up.
    let mended: String = text
        .lines()
        .filter(|line| !line.starts_with("short,"))
        .map(|line| {
            line.replace(",1e3,", ",3.50,")
                .replace("2026-02-30", "2026-02-28")
                .replace(",-9.99,", ",-10.00,")
                + "\n"
        })
        .collect();
    let mended = house.home.write("mended.csv", &mended);
    let second = import(&house.home, &tenant, &mended).await;
    assert_eq!((second.code, counts(&second)), (Some(0), [6, 3, 0, 0]), "{second:?}");
    assert!(
        !house.home.dir.join("mended.rejected.csv").exists(),
        "nothing to say, no file"
    );
    let all = balances(&accounts(&house).await);
    let shown: Vec<_> = all
        .iter()
        .map(|(account, (_, amount))| (account.as_str(), amount.as_str()))
        .collect();
    let expected = [
        ("books", "10"),
        ("cafe", "3.5"),
        ("cash", "66.5"),
        ("equity", "-100"),
        ("income", "-20"),
        ("rent", "40"),
    ];
    assert_eq!(shown, expected);
    // The first file again: what was good is known, what was mended is another transfer now.
    let third = import(&house.home, &tenant, &file).await;
    assert_eq!((third.code, counts(&third)), (Some(1), [11, 0, 2, 4]), "{third:?}");
    assert_eq!(balances(&accounts(&house).await), all);
    house.check().await;
}

#[tokio::test]
async fn a_journal_that_cannot_be_read_is_one_sentence() {
    let house = House::new(Server::Pg15).await;
    let tenant = house.tenant.to_string();
    let import = async |file: &Path| import(&house.home, &tenant, file).await;
    import(Path::new("/nowhere.csv")).await.could_not_run(&["/nowhere.csv"]);
    let file = house.home.write("columns.csv", "key,date,description,account,asset\n");
    import(&file)
        .await
        .could_not_run(&["does not name the columns", "`amount` is missing"]);
    let file = house.home.write("empty.csv", "");
    import(&file)
        .await
        .could_not_run(&["the journal is empty", "key, date"]);
    let file = house
        .home
        .write("semicolons.csv", "key;date;description;account;asset;amount\n");
    import(&file).await.could_not_run(&["separated by ';'", "with commas"]);
    assert_eq!(house.stubs().await, 0);
}
