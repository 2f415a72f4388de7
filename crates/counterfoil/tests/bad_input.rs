//! Case 5: bad input gets a clear error, the server lives, and nothing has happened. A stub stays
//! only where the database had to be asked.

use counterfoil_test::Server;
use serde_json::{Value, json};

use crate::client::Client;
use crate::harness::{House, Up, fresh, intent, open_books, transfer};

const JSON: (&str, &str) = ("content-type", "application/json");
const LINES: (&str, &str) = ("content-type", "application/x-ndjson");

/// A server with books of which nothing may change, and what was there before.
struct Quiet {
    house: House,
    up: Up,
    client: Client,
    stubs: i64,
}

impl Quiet {
    async fn new(server: Server) -> Self {
        let house = House::new(server).await;
        let up = house.up().await;
        let mut client = house.client(&up);
        open_books(&mut client, &["till"]).await;
        Self {
            stubs: house.stubs().await,
            client,
            up,
            house,
        }
    }

    /// The server lives, and all that is new are so many stubs.
    async fn nothing_happened(&mut self, new_stubs: i64) {
        assert!(self.client.is_alive().await);
        assert_eq!(self.house.stubs().await - self.stubs, new_stubs);
        assert_eq!((self.house.transfers().await, self.house.entries().await), (0, 0));
        assert_eq!(
            self.house.number("SELECT count(*) FROM counterfoil.ledger_hold").await,
            0
        );
        assert_eq!(
            self.house
                .number("SELECT count(*) FROM counterfoil.ledger_account")
                .await,
            2
        );
        assert_eq!(self.client.account("till", "version").await, 1);
        let good = transfer(&fresh(), "bank", "till", "1");
        assert_eq!(
            self.client.post("/intents", &good).await.status,
            201,
            "and good input is as welcome as before"
        );
        let log = self.up.log();
        assert!(
            !log.contains(" ERROR ") && !log.contains("panicked"),
            "a caller's fault is not the server's: {log}"
        );
        self.house.check().await;
    }
}

#[tokio::test]
async fn case_5_amounts_that_other_parsers_would_take() {
    let mut quiet = Quiet::new(Server::Pg18).await;
    let ten_to_40 = format!("1{}", "0".repeat(40));
    let eighteen = format!("0.{}1", "0".repeat(18));
    let cases: &[(&str, &str)] = &[
        ("1e3", "amount_invalid"),
        ("1E3", "amount_invalid"),
        ("1_000", "amount_invalid"),
        ("1,000", "amount_invalid"),
        ("1 000", "amount_invalid"),
        (".5", "amount_invalid"),
        ("5.", "amount_invalid"),
        (".", "amount_invalid"),
        ("+1", "amount_invalid"),
        ("--1", "amount_invalid"),
        ("-", "amount_invalid"),
        ("", "amount_invalid"),
        (" 1", "amount_invalid"),
        ("1 ", "amount_invalid"),
        ("1\n", "amount_invalid"),
        ("1\u{0}", "amount_invalid"),
        ("NaN", "amount_invalid"),
        ("nan", "amount_invalid"),
        ("Infinity", "amount_invalid"),
        ("-inf", "amount_invalid"),
        ("0x10", "amount_invalid"),
        ("1.2.3", "amount_invalid"),
        ("½", "amount_invalid"),
        ("١", "amount_invalid"),
        ("１", "amount_invalid"),
        ("−1", "amount_invalid"),
        ("1;DROP TABLE counterfoil.stub", "amount_invalid"),
        (&ten_to_40, "amount_too_long"),
        (&eighteen, "amount_too_long"),
        ("0", "amount_zero"),
        ("-0", "amount_zero"),
        ("0.000", "amount_zero"),
        ("-1", "amount_negative"),
    ];
    for (amount, code) in cases {
        let body = json!({ "key": fresh(), "from": "bank", "to": "till", "amount": amount });
        let answer = quiet.client.post("/transfers", &body).await;
        assert_eq!(answer.verdict(), (400, (*code).to_owned()), "{amount:?}");
        assert_eq!(answer.json()["field"], "amount", "{amount:?}");
        let body = json!({ "key": fresh(), "account": "till", "amount": amount });
        let answer = quiet.client.post("/holds", &body).await;
        assert_eq!(answer.verdict(), (400, (*code).to_owned()), "{amount:?} of a hold");
    }
    // Numbers where a string belongs, as they are written and not as a parser would keep them.
    for number in [
        "1",
        "1.5",
        "0.1",
        "1e3",
        "-0",
        "1e400",
        "12345678901234567890123",
        "true",
        "[]",
        "{}",
        "[\"1\"]",
    ] {
        let body = format!(r#"{{"key":"{}","from":"bank","to":"till","amount":{number}}}"#, fresh());
        let answer = quiet.client.post_bytes("/transfers", &[JSON], body.as_bytes()).await;
        assert_eq!(answer.verdict(), (400, "body_invalid".to_owned()), "{number}");
        assert_eq!(answer.json()["field"], "amount", "{number}");
    }
    quiet.nothing_happened(0).await;
}

#[tokio::test]
async fn case_5_an_amount_that_only_its_asset_can_judge_leaves_a_stub_and_no_effect() {
    let mut quiet = Quiet::new(Server::Pg15).await;
    let nines = "9".repeat(38);
    for (amount, code) in [("1.005", "amount_too_fine"), (nines.as_str(), "amount_too_large")] {
        let body = json!({ "key": code, "from": "bank", "to": "till", "amount": amount });
        let refused = quiet.client.post("/transfers", &body).await;
        assert_eq!(refused.verdict(), (409, code.to_owned()));
        assert_eq!(refused.json()["field"], "amount");
        assert_eq!(quiet.client.stub_state(code).await, "found");
        let again = quiet.client.post("/transfers", &body).await;
        assert_eq!(
            (again.status, again.replayed(), again.text()),
            (409, true, refused.text())
        );
    }
    quiet.nothing_happened(2).await;
}

#[tokio::test]
async fn case_5_texts_that_postgres_cannot_keep() {
    let mut quiet = Quiet::new(Server::Pg18).await;
    let with = |field: &str| {
        format!(
            r#"{{"key":"{}","from":"bank","to":"till","amount":"1",{field}}}"#,
            fresh()
        )
    };
    let from = |text: &str| format!(r#"{{"key":"{}","from":"{text}","to":"till","amount":"1"}}"#, fresh());
    let cases = [
        (from("ba\\u0000nk"), "account_code_invalid", "from"),
        (from("\\ud800"), "body_invalid", "from"),
        (from("\\udc00\\ud800"), "body_invalid", "from"),
        (with(r#""description":"a\u0000b""#), "text_nul", "description"),
        (with(r#""description":"\ud83d""#), "body_invalid", "description"),
        (with(r#""metadata":{"a":["\u0000"]}"#), "text_nul", "metadata"),
        (with(r#""metadata":{"a\u0000":1}"#), "text_nul", "metadata"),
        (with(r#""metadata":{"a":"\udead"}"#), "metadata_invalid", "metadata"),
        (with(r#""metadata":{"a":1e999}"#), "metadata_invalid", "metadata"),
        (with(r#""metadata":[]"#), "metadata_invalid", "metadata"),
    ];
    for (body, code, field) in cases {
        let answer = quiet.client.post_bytes("/transfers", &[JSON], body.as_bytes()).await;
        assert_eq!(answer.verdict(), (400, code.to_owned()), "{body}");
        assert_eq!(answer.json()["field"], field, "{body}");
    }
    // Bytes that are no UTF-8: a surrogate on its own, Latin-1, an overlong slash.
    for bytes in [&b"\xed\xa0\x80"[..], b"\xe9", b"\xc0\xaf"] {
        let body = [
            br#"{"key":"k","from":"bank","to":"till","amount":"1","description":""#,
            bytes,
            br#""}"#,
        ]
        .concat();
        let answer = quiet.client.post_bytes("/transfers", &[JSON], &body).await;
        assert_eq!(answer.verdict(), (400, "body_encoding".to_owned()), "{bytes:?}");
    }
    // In addresses, too.
    for (path, status, code) in [
        ("/accounts/a%00b", 400, "text_nul"),
        ("/accounts/%ff", 400, "url_encoding"),
        ("/accounts?prefix=%00", 400, "text_nul"),
        ("/transfers/not-an-id", 404, "not_found"),
    ] {
        let answer = quiet.client.get(path).await;
        assert_eq!(answer.verdict(), (status, code.to_owned()), "{path}");
    }
    quiet.nothing_happened(0).await;
}

#[tokio::test]
async fn case_5_bodies_of_the_wrong_shape_or_type_or_cut_short() {
    let mut quiet = Quiet::new(Server::Pg15).await;
    let good = json!({ "key": "k", "from": "bank", "to": "till", "amount": "1" }).to_string();
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let large = "x".repeat(64 << 10);
    let with = |field: &str| format!(r#"{{"key":"k","from":"bank","to":"till","amount":"1",{field}}}"#);
    let shapes = [
        (with(r#""amuont":"1""#), 400, "body_invalid"),
        (with(r#""amount":"1""#), 400, "body_invalid"),
        (
            with(r#""expect":[{"account":"till","version":1.0}]"#),
            400,
            "body_invalid",
        ),
        (
            with(r#""expect":[{"account":"till","version":9223372036854775808}]"#),
            400,
            "body_invalid",
        ),
        (with(r#""legs":[]"#), 400, "transfer_shape"),
        (with(&format!(r#""metadata":{{"a":{deep}}}"#)), 400, "metadata_invalid"),
        (with(&format!(r#""description":"{large}""#)), 413, "body_too_large"),
        ("null".to_owned(), 400, "body_invalid"),
        ("\"text\"".to_owned(), 400, "body_invalid"),
        ("[]".to_owned(), 400, "body_invalid"),
        (String::new(), 400, "json_invalid"),
        ("{}{}".to_owned(), 400, "json_invalid"),
        (format!("{good}]"), 400, "json_invalid"),
        (format!("\u{feff}{good}"), 400, "json_invalid"),
    ];
    for (body, status, code) in shapes {
        let answer = quiet.client.post_bytes("/transfers", &[JSON], body.as_bytes()).await;
        assert_eq!(answer.verdict(), (status, code.to_owned()), "{body:.200}");
    }
    // Cut short at every place.
    for end in 0..good.len() {
        let answer = quiet
            .client
            .post_bytes("/transfers", &[JSON], &good.as_bytes()[..end])
            .await;
        assert_eq!(answer.verdict(), (400, "json_invalid".to_owned()), "{:?}", &good[..end]);
    }
    // Those that only our own workers make are as unknown as any, and nobody is told of them.
    for kind in ["ledger.trnasfer", "ledger.import", "ledger.expire", ""] {
        let answer = quiet.client.post("/intents", &intent("k", kind, &json!({}))).await;
        assert_eq!(answer.verdict(), (400, "kind_unknown".to_owned()), "{kind}");
        let detail = answer.json()["detail"].as_str().unwrap_or_default().to_owned();
        assert!(
            detail.contains("ledger.transfer")
                && !detail.contains("ledger.import")
                && !detail.contains("ledger.expire"),
            "{detail}"
        );
        let all = json!({ "key": "k", "all": [{ "kind": kind, "body": {} }] });
        let answer = quiet.client.post("/intents", &all).await;
        assert_eq!(answer.verdict(), (400, "kind_unknown".to_owned()), "{kind}");
    }
    let page = quiet.client.send("GET", "/", &[], b"").await.unwrap().text().to_owned();
    assert!(
        page.contains("ledger.transfer") && !page.contains("ledger.import") && !page.contains("ledger.expire"),
        "{page}"
    );
    for types in [
        &[("content-type", "text/plain")][..],
        &[("content-type", "application/x-www-form-urlencoded")],
        &[("content-type", "application/json; charset=latin1")],
        &[LINES],
        &[JSON, ("content-encoding", "gzip")],
        &[],
    ] {
        let answer = quiet.client.post_bytes("/transfers", types, good.as_bytes()).await;
        assert_eq!(answer.verdict(), (415, "media_type".to_owned()), "{types:?}");
    }
    // A length that is longer than what comes, then the end of the stream.
    let path = quiet.client.path("/transfers");
    let key = &quiet.client.key;
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n");
    let cut = format!("{head}content-length: {}\r\n\r\n{good}", good.len() + 1);
    if let Ok(answer) = quiet.client.raw(cut.as_bytes()).await {
        assert_eq!(answer.verdict(), (400, "body_incomplete".to_owned()));
    }
    let cut = format!("{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{good}\r\n", good.len());
    if let Ok(answer) = quiet.client.raw(cut.as_bytes()).await {
        assert_eq!(answer.verdict(), (400, "body_incomplete".to_owned()));
    }
    quiet.nothing_happened(0).await;
}

#[tokio::test]
async fn case_5_a_bad_item_of_an_array_or_of_lines_spoils_no_other() {
    let mut quiet = Quiet::new(Server::Pg18).await;
    let items = [
        transfer("a", "bank", "till", "1"),
        transfer("b", "bank", "till", "1e3"),
        json!({ "kind": "ledger.transfer", "body": {} }),
        transfer("c", "bank", "till", "1.005"),
        json!("text"),
        transfer("d", "bank", "till", "2"),
    ];
    let expected = [
        (201, ""),
        (400, "amount_invalid"),
        (400, "key_missing"),
        (409, "amount_too_fine"),
        (400, "body_invalid"),
        (201, ""),
    ];
    let shown = |items: &[Value]| -> Vec<(u64, String)> {
        let code = |item: &Value| item["code"].as_str().unwrap_or_default().to_owned();
        items
            .iter()
            .map(|item| (item["status"].as_u64().unwrap(), code(item)))
            .collect()
    };
    let told = quiet.client.post("/intents", &json!(items)).await.items();
    assert_eq!(shown(&told), expected.map(|(status, code)| (status, code.to_owned())));

    // The same as lines, with one that is cut short: all but that are replays.
    let mut lines: Vec<String> = items.iter().map(Value::to_string).collect();
    lines.insert(1, r#"{"key":"e","kind":"ledger.tra"#.to_owned());
    let answer = quiet
        .client
        .post_bytes("/intents", &[LINES], lines.join("\r\n").as_bytes())
        .await;
    assert_eq!(answer.status, 200);
    let told: Vec<Value> = answer
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut replays = expected
        .map(|(status, code)| (if status == 201 { 200 } else { status }, code.to_owned()))
        .to_vec();
    replays.insert(1, (400, "json_invalid".to_owned()));
    assert_eq!(shown(&told), replays);
    // An array that is cut short is nothing at all.
    let array = json!([transfer("f", "bank", "till", "1"), transfer("g", "bank", "till", "1")]).to_string();
    let answer = quiet
        .client
        .post_bytes("/intents", &[JSON], &array.as_bytes()[..array.len() - 3])
        .await;
    assert_eq!(answer.verdict(), (400, "json_invalid".to_owned()));
    assert_eq!(quiet.client.stub_state("f").await, "none");
    assert_eq!(quiet.client.account("till", "posted").await, "3.00");
    assert_eq!(quiet.house.stubs().await - quiet.stubs, 3);
}

#[tokio::test]
async fn case_5_too_many_items_are_refused_whole_and_two_thousand_are_taken() {
    let mut quiet = Quiet::new(Server::Pg15).await;
    let items = |count: usize| -> Vec<Value> { (0..count).map(|_| transfer(&fresh(), "bank", "till", "1")).collect() };
    let answer = quiet.client.post("/intents", &json!(items(2_001))).await;
    assert_eq!(answer.verdict(), (413, "too_many_items".to_owned()));
    let lines: Vec<String> = items(2_001).iter().map(Value::to_string).collect();
    let answer = quiet
        .client
        .post_bytes("/intents", &[LINES], lines.join("\n").as_bytes())
        .await;
    assert_eq!(answer.verdict(), (413, "too_many_items".to_owned()));
    let effect = json!({ "kind": "ledger.transfer", "body": { "from": "bank", "to": "till", "amount": "1" } });
    let answer = quiet
        .client
        .post("/intents", &json!({ "key": "all", "all": vec![effect; 101] }))
        .await;
    assert_eq!(answer.verdict(), (413, "all_too_long".to_owned()));
    quiet.nothing_happened(0).await;
    let answers = quiet.client.post("/intents", &json!(items(2_000))).await.items();
    assert_eq!(answers.len(), 2_000);
    assert!(answers.iter().all(|item| item["status"] == 201));
    assert_eq!(quiet.client.account("till", "posted").await, "2001.00");
}

#[tokio::test]
async fn case_5_two_hundred_megabytes_are_refused_and_cost_no_memory() {
    let mut quiet = Quiet::new(Server::Pg18).await;
    for rest in ["/intents", "/transfers"] {
        for chunked in [false, true] {
            let answer = quiet.client.flood(rest, 200, chunked).await;
            assert_eq!(
                answer.verdict(),
                (413, "request_too_large".to_owned()),
                "{rest}, chunked {chunked}"
            );
        }
    }
    let peak = quiet.up.peak_memory();
    assert!(peak < 150 << 20, "{peak} bytes");
    quiet.nothing_happened(0).await;
}
