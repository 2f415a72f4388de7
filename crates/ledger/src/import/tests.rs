use std::collections::BTreeMap;
use std::fs::File;
use std::io::Cursor;
use std::path::PathBuf;

use counterfoil_intent::{Kind, Outcome, Plan};

use super::*;
use crate::account::AccountId;
use crate::asset::NewAsset;
use crate::open::Open;
use crate::source::Import;
use crate::store::Balances;
use crate::{register, render};

/// The books alone: everything is in one batch that never ends.
struct Book {
    plan: Plan,
    accounts: BTreeMap<String, AssetCode>,
    /// What it was handed, in order.
    log: Vec<String>,
}

impl Book {
    fn new() -> Self {
        let mut kinds = Kinds::new();
        register(&mut kinds);
        let now = "2026-01-31T12:00:00Z".parse().unwrap();
        Self {
            plan: Plan::new(&kinds, TenantId(1), now),
            accounts: BTreeMap::new(),
            log: Vec::new(),
        }
    }

    fn apply<K: Kind>(&mut self, body: &K::Body) -> Verdict {
        match self.plan.apply::<K>(body) {
            Outcome::Accepted(reply) if format!("{reply:?}").contains("known") => Verdict::Known,
            Outcome::Accepted(_) => Verdict::Done,
            Outcome::Refused(refusal) => Verdict::Refused {
                code: refusal.code.to_owned(),
                message: refusal.message.into_owned(),
            },
        }
    }

    fn balances(&self) -> BTreeMap<String, (String, String)> {
        let balance = |code: &String| *self.plan.books.get::<Balances>(&AccountId::of(code)).unwrap();
        let row = |(code, asset): (&String, &AssetCode)| {
            let balance = balance(code);
            (code.clone(), (asset.to_string(), render(balance.posted, balance.scale)))
        };
        self.accounts.iter().map(row).collect()
    }
}

impl Sink for &mut Book {
    async fn settle(&mut self, effects: &[Effect]) -> Result<Vec<Verdict>, &'static str> {
        let one = |effect: &Effect| match effect {
            Effect::Asset(body) => {
                self.log.push(format!("asset {} {}", body.code, body.scale));
                self.apply::<NewAsset>(body)
            }
            Effect::Open(body) => {
                self.log.push(format!("open {} {}", body.account, body.asset));
                let verdict = self.apply::<Open>(body);
                self.accounts.entry(body.account.to_string()).or_insert(body.asset);
                verdict
            }
            Effect::Import(body) => {
                self.log.push(format!("import {}", body.source()));
                self.apply::<Import>(body)
            }
        };
        Ok(effects.iter().map(one).collect())
    }
}

/// Imports a text; gives back the counts and the error file.
fn import(book: &mut Book, text: impl AsRef<[u8]>) -> Result<(Counts, String), Error> {
    let mut errors = Vec::new();
    let mut opened = 0;
    let mut last = Progress::default();
    let input = Cursor::new(text.as_ref());
    let counts = {
        let errors = std::cell::RefCell::new(&mut errors);
        let open = || {
            opened += 1;
            Ok(Shared(&errors))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(run_on(book, input, open, |progress| last = progress))?
    };
    assert!(opened <= 1, "one error file is enough");
    assert_eq!(
        last,
        Progress {
            bytes: 2 * text.as_ref().len() as u64,
            counts
        }
    );
    Ok((counts, String::from_utf8_lossy(&errors).into_owned()))
}

struct Shared<'a, 'b>(&'a std::cell::RefCell<&'b mut Vec<u8>>);

impl Write for Shared<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name)
}

const HEADER: &str = "key,date,description,account,asset,amount\n";

#[test]
fn the_journal_imports_whole_and_its_balances_are_those_of_the_accounting_program() {
    let mut book = Book::new();
    let journal = std::fs::read(data("journal.csv")).unwrap();
    let (counts, errors) = import(&mut book, &journal).unwrap();
    assert_eq!(
        (counts.rows, counts.imported, counts.known, counts.failed),
        (6_070, 2_136, 0, 0),
        "{errors}"
    );
    assert_eq!((counts.assets, errors.as_str()), (3, ""));

    // As numbers: the accounting program writes -129500 beside 0.00 of the same asset.
    let number = |text: &str| Decimal::parse(text).unwrap();
    let ours = |book: &Book| -> BTreeMap<_, _> {
        book.balances()
            .into_iter()
            .map(|(code, (asset, posted))| (code, (asset, number(&posted))))
            .collect()
    };
    let mut expected = BTreeMap::new();
    for row in csv::Reader::from_reader(File::open(data("journal_balances.csv")).unwrap()).into_records() {
        let row = row.unwrap();
        expected.insert(row[0].to_owned(), (row[1].to_owned(), number(&row[2])));
    }
    assert_eq!(ours(&book), expected);

    // Again: everything is known, and nothing moves.
    let (again, errors) = import(&mut book, &journal).unwrap();
    assert_eq!(
        (again.imported, again.known, again.failed, again.assets, again.accounts),
        (0, 2_136, 0, 0, 0)
    );
    assert_eq!((ours(&book), errors.as_str()), (expected, ""));
}

#[test]
fn rows_with_errors_can_be_mended_and_sent_again() {
    let mut book = Book::new();
    let text = format!(
        "{HEADER}\
         a,2026-01-01,one,cash,USD,1.50\n\
         a,2026-01-01,one,bank,USD,-1.50\n\
         b,2026-01-02,two,cash,USD,1e3\n\
         b,2026-01-02,two,bank,USD,-1000\n\
         c,2026-01-03,three,cash,USD,2\n\
         c,2026-01-03,three,bank,USD,-3\n\
         d,2026-02-30,four,cash,USD,2\n\
         d,2026-02-30,four,bank,USD,-2\n\
         e,2026-01-05,five,cash,EUR,2\n\
         e,2026-01-05,five,bank,EUR,-2\n\
         f,2026-01-06,six,cash,USD,1\n\
         f,2026-01-07,six,bank,USD,-1\n\
         g,2026-01-08,seven,cash,USD\n\
         g,2026-01-08,seven,bank,USD,-1\n\
         ,2026-01-09,eight,cash,USD,1\n\
         ,2026-01-09,eight,bank,USD,-1\n\
         h,2026-01-10,\"nine, and\nmore\",cash,USD,4\n\
         h,2026-01-10,\"nine, and\nmore\",bank,USD,-4\n"
    );
    let (counts, errors) = import(&mut book, &text).unwrap();
    assert_eq!((counts.imported, counts.failed, counts.rows), (2, 7, 18), "{errors}");
    let told: Vec<_> = errors
        .lines()
        .skip(1)
        .map(|line| line.split(',').next_back().unwrap())
        .collect();
    assert!(errors.starts_with("key,date,description,account,asset,amount,error\nb,2026-01-02,two,cash,USD,1e3,"));
    for code in [
        "amount_invalid",
        "legs_unbalanced",
        "date_invalid",
        "asset_mismatch",
        "rows_differ",
        "row_invalid",
    ] {
        assert!(errors.contains(&format!("{code}: ")), "{code} in {told:?}");
    }

    // Mended by hand; the column with the errors may stay.
    let mended = errors
        .replace("USD,1e3", "USD,1000")
        .replace("USD,-3", "USD,-2")
        .replace("2026-02-30", "2026-02-28")
        .replace("EUR", "USD")
        .replace("2026-01-07", "2026-01-06")
        .replace("seven,cash,USD,,", "seven,cash,USD,1,")
        .replace("\n,", "\ni,");
    let (counts, errors) = import(&mut book, &mended).unwrap();
    assert_eq!((counts.imported, counts.known, counts.failed), (7, 0, 0), "{errors}");
    let (counts, _) = import(&mut book, text.replace("1e3", "1000")).unwrap();
    assert_eq!((counts.imported, counts.known), (0, 3));
    assert_eq!(book.balances()["cash"].1, "1014.50");
}

#[test]
fn the_scale_of_an_asset_is_the_most_decimals_of_the_whole_file() {
    let mut book = Book::new();
    let text = format!(
        "{HEADER}a,2026-01-01,,cash,BTC,1\na,2026-01-01,,bank,BTC,-1\n\
         b,2026-01-01,,cash,BTC,0.00010000\nb,2026-01-01,,bank,BTC,-0.0001\n\
         c,2026-01-01,,cash,BTC,1.x2345678901\nc,2026-01-01,,bank,BTC,-1\n"
    );
    import(&mut book, text).unwrap();
    assert_eq!(book.log[0], "asset BTC 8");
    assert_eq!(book.balances()["cash"].1, "1.00010000");
}

#[test]
fn the_same_key_for_another_transfer_is_refused_and_the_first_stays() {
    let mut book = Book::new();
    let text = format!(
        "{HEADER}a,2026-01-01,,cash,USD,1\na,2026-01-01,,bank,USD,-1\n\
         b,2026-01-01,,cash,USD,1\nb,2026-01-01,,bank,USD,-1\n\
         a,2026-01-01,,cash,USD,5\na,2026-01-01,,bank,USD,-5\n"
    );
    let (counts, errors) = import(&mut book, text).unwrap();
    assert_eq!((counts.imported, counts.failed), (2, 1));
    assert!(
        errors.contains("source_exists: the key a was imported before"),
        "{errors}"
    );
    assert_eq!(book.balances()["cash"].1, "2");
}

#[test]
fn a_transfer_of_too_many_rows_is_refused_in_all_its_parts() {
    let mut book = Book::new();
    let mut text = HEADER.to_owned();
    for i in 0..125 {
        text += &format!("a,2026-01-01,,x{i},USD,1\na,2026-01-01,,y{i},USD,-1\n");
    }
    text += "b,2026-01-01,,cash,USD,1\nb,2026-01-01,,bank,USD,-1\n";
    let (counts, errors) = import(&mut book, text).unwrap();
    assert_eq!((counts.imported, counts.rows), (1, 252));
    assert_eq!(errors.lines().filter(|line| line.contains("legs_count")).count(), 250);
}

#[test]
fn columns_may_stand_in_any_order_and_unknown_ones_are_refused() {
    let mut book = Book::new();
    let text =
        "\u{feff}amount,asset,account,description,date,key\n1,USD,cash,,2026-01-01,a\n-1,USD,bank,,2026-01-01,a\n";
    assert_eq!(import(&mut book, text).unwrap().0.imported, 1);
    for (header, message) in [
        ("key,date,description,account,asset\n", "`amount` is missing"),
        (
            "key,date,description,account,asset,amount,key\n",
            "`key` is there twice",
        ),
        (
            "key,date,description,account,asset,amount,cost\n",
            "`cost` is not one of",
        ),
        (
            "id,amount\n",
            "`key` is missing; they are key, date, description, account, asset, amount, and the row has id, amount",
        ),
        ("key;date;description;account;asset;amount\n", "separated by ';'"),
        ("key\tdate\tdescription\taccount\tasset\tamount\n", "separated by '\\t'"),
    ] {
        match import(&mut book, header) {
            Err(Error::Header(told)) => assert!(told.contains(message), "{told}"),
            other => panic!("{header:?}: {other:?}"),
        }
    }
    for empty in ["", "\n", "\u{feff}"] {
        let told = import(&mut book, empty).unwrap_err().to_string();
        assert!(told.starts_with("the journal is empty"), "{empty:?}: {told}");
    }
}

#[test]
fn rows_of_any_width_come_back_with_every_column_and_the_line_they_had() {
    let mut book = Book::new();
    let text = format!(
        "{HEADER}a,2026-01-01,,cash,USD,1\na,2026-01-01,,bank\nb,2026-01-01,two, words,cash,USD,1\nb,2026-01-01,two words,bank,USD,-1\n"
    );
    let (counts, errors) = import(&mut book, &text).unwrap();
    assert_eq!((counts.imported, counts.failed), (0, 2));
    let mut reader = csv::Reader::from_reader(errors.as_bytes());
    let rows: Vec<_> = reader.records().map(|row| row.expect("as wide as the first")).collect();
    let told: Vec<_> = rows.iter().map(|row| row[6].to_owned()).collect();
    assert_eq!(
        told,
        [
            "row_invalid: line 3: it has 4 fields, and the first row of the file 6",
            "row_invalid: line 3: it has 4 fields, and the first row of the file 6",
            "row_invalid: line 4: it has 7 fields, and the first row of the file 6, beyond them 1",
            "row_invalid: line 4: it has 7 fields, and the first row of the file 6, beyond them 1",
        ]
    );
    assert_eq!(
        &rows[1].iter().take(6).collect::<Vec<_>>(),
        &["a", "2026-01-01", "", "bank", "", ""]
    );
}

#[test]
fn the_line_that_is_named_is_the_one_of_the_file_however_lines_end() {
    let rows = [
        "a,2026-01-01,\"one\ntwo\",cash,USD,1",
        "a,2026-01-01,\"one\ntwo\",bank,USD,-1",
        "b,2026-01-01,x,cash,USD,bad",
        "b,2026-01-01,x,bank,USD,1",
    ];
    for (end, empty) in [("\n", ""), ("\r\n", ""), ("\n", "\n\n"), ("\r\n", "\r\n")] {
        let text = format!(
            "{}{end}{}{end}{}{end}{empty}{}{end}{}",
            HEADER.trim_end(),
            rows[0],
            rows[1],
            rows[2],
            rows[3]
        );
        // Counted by hand: the header, two rows of two lines, the empty lines, and then the bad one.
        let line = 1 + 4 + empty.matches('\n').count() + 1;
        let (counts, errors) = import(&mut Book::new(), &text).unwrap();
        assert_eq!((counts.imported, counts.failed), (1, 1), "{text:?}: {errors}");
        assert!(
            errors.contains(&format!("line {line}, amount: ")),
            "{line} of {text:?}: {errors}"
        );
    }
}

#[test]
fn bytes_that_are_no_text_come_back_as_they_were() {
    let mut book = Book::new();
    let mut text = HEADER.as_bytes().to_vec();
    text.extend_from_slice(b"a,2026-01-01,\xff,cash,USD,1\na,2026-01-01,\xff,bank,USD,-1\n");
    let (counts, errors) = import(&mut book, text).unwrap();
    assert_eq!(counts.failed, 1);
    assert!(
        errors.contains("row_invalid: line 2: the field description is not UTF-8"),
        "{errors}"
    );
}

#[test]
fn an_import_that_gives_up_says_where() {
    struct Down;
    impl Sink for Down {
        async fn settle(&mut self, _: &[Effect]) -> Result<Vec<Verdict>, &'static str> {
            Err("the server is on its way down")
        }
    }
    let text = format!("{HEADER}a,2026-01-01,,cash,USD,1\na,2026-01-01,,bank,USD,-1\n");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told = runtime
        .block_on(run_on(Down, Cursor::new(text), || Ok(std::io::sink()), |_| ()))
        .unwrap_err();
    assert_eq!(
        told.to_string(),
        "the import stopped at line 2: the server is on its way down; run it again to go on"
    );
}
