//! Events over HTTP.

use counterfoil_events::Answer;

use crate::engine::Client;

const PATH: &str = "/v1/tenants/7/events";

fn v7(n: u8) -> String {
    let ms = counterfoil_events::now().as_millisecond().unsigned_abs();
    uuid::Builder::from_unix_timestamp_millis(ms, &[n; 10])
        .into_uuid()
        .to_string()
}

fn event(n: u8) -> String {
    format!(r#"{{"stream":"web","subject":"/","id":"{}"}}"#, v7(n))
}

#[tokio::test]
async fn one_event_is_201_and_the_same_again_200() {
    let client = Client::new();
    let got = client.post(PATH).send(event(1)).await;
    assert_eq!(got.status, 201, "{}", got.text);
    assert_eq!(got.json()["outcome"], "stored");
    assert_eq!(got.json()["event"], client.app.engine().events.lock()[0].to_string());
    *client.app.engine().came.lock() = vec![Answer::Known];
    let got = client.post(PATH).send(event(1)).await;
    assert_eq!((got.status.as_u16(), &got.json()["outcome"]), (200, &"known".into()));
}

#[tokio::test]
async fn what_is_wrong_with_one_event_is_told_with_its_field() {
    let client = Client::new();
    let cases = [
        (
            r#"{"stream":"a b","subject":"/","id":"x"}"#.to_owned(),
            400,
            "stream_invalid",
        ),
        (
            r#"{"stream":"web","subject":"/","id":"x"}"#.to_owned(),
            400,
            "event_time_missing",
        ),
        (
            r#"{"stream":"web","subject":"/","id":"x","at":"0001-01-01T00:00:00Z"}"#.to_owned(),
            400,
            "event_too_old",
        ),
        (r#"{"stream":"web","id":"x"}"#.to_owned(), 400, "body_invalid"),
        (
            format!(r#"{{"stream":"{}"}}"#, "x".repeat(70_000)),
            413,
            "event_too_large",
        ),
        ("{".to_owned(), 400, "json_invalid"),
    ];
    for (body, status, code) in cases {
        let got = client.post(PATH).send(body.clone()).await;
        assert_eq!((got.status.as_u16(), got.code().as_str()), (status, code), "{body:.80}");
    }
    assert!(client.app.engine().events.lock().is_empty());
}

/// Case 5: one bad item, of every sort, spoils nothing but itself.
#[tokio::test]
async fn case_5_bad_lines_spoil_only_themselves() {
    let client = Client::new();
    let bad: [&[u8]; 6] = [
        br#"{"stream":"web","subject":"a\u0000b","id":"x","at":"2026-11-30T00:00:00Z"}"#,
        br#"{"stream":"web","subject":"\ud800","id":"x","at":"2026-11-30T00:00:00Z"}"#,
        b"{\"stream\":\"web\",\"subject\":\"\xff\",\"id\":",
        br#"{"stream":"web","subject":"/","id":"x","at":"+57000-01-01T00:00:00Z"}"#,
        br#"{"stream":"web","subject":"/","id":"x","at":"10000-01-01T00:00:00Z"}"#,
        b"not json",
    ];
    for bad in bad {
        let mut body = Vec::new();
        for n in 0..10 {
            body.extend_from_slice(event(n).as_bytes());
            body.push(b'\n');
            if n == 4 {
                body.extend_from_slice(bad);
                body.push(b'\n');
            }
        }
        let got = client
            .post(PATH)
            .instead("content-type", "application/x-ndjson")
            .send(body)
            .await;
        assert_eq!(got.status, 200, "{}", got.text);
        let statuses: Vec<_> = got
            .text
            .lines()
            .map(|line| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["status"]
                    .as_u64()
                    .unwrap()
            })
            .collect();
        assert_eq!(
            statuses,
            [201, 201, 201, 201, 201, 400, 201, 201, 201, 201, 201],
            "{}",
            got.text
        );
    }
    assert_eq!(client.app.engine().events.lock().len(), 60);
}

#[tokio::test]
async fn what_was_not_stored_says_why_and_when_to_come_again() {
    let client = Client::new();
    let second = std::time::Duration::from_secs(1);
    let cases = [
        (Answer::TooMany { retry_after: second }, 429, "too_many"),
        (Answer::DeadlinePassed, 408, "deadline_passed"),
        (Answer::Unavailable { reason: "x" }, 503, "unavailable"),
        (Answer::ShuttingDown, 503, "shutting_down"),
        (Answer::Failed { id: uuid::Uuid::nil() }, 500, "internal"),
        (Answer::Unknown, 504, "outcome_unknown"),
    ];
    for (answer, status, code) in cases {
        *client.app.engine().came.lock() = vec![answer.clone()];
        let got = client.post(PATH).send(event(1)).await;
        assert_eq!((got.status.as_u16(), got.code().as_str()), (status, code));
        *client.app.engine().came.lock() = vec![Answer::Stored, answer];
        let got = client.post(PATH).send(format!("[{},{}]", event(1), event(2))).await;
        let items = got.json();
        assert_eq!(
            (&items[0]["status"], &items[1]["code"]),
            (&201.into(), &code.into()),
            "{items}"
        );
    }
}

#[tokio::test]
async fn a_key_in_the_header_is_refused_since_the_id_is_the_key() {
    let got = Client::new()
        .post(PATH)
        .instead("idempotency-key", "k")
        .send(event(1))
        .await;
    assert_eq!((got.status.as_u16(), got.code().as_str()), (400, "key_for_events"));
}

#[tokio::test]
async fn a_report_is_json_or_csv() {
    let client = Client::new();
    let report = "/v1/tenants/7/report?stream=web";
    let get = async |query: &str| client.get(&format!("{report}{query}")).empty().await;
    let mut all = Vec::new();
    for query in [
        "&zone=Asia/Taipei",
        "&zone=Asia/Taipei&format=csv",
        "&top=2",
        "&top=2&format=csv",
    ] {
        all.push(get(query).await.text);
    }
    insta::assert_snapshot!(all.join("\n"), @r#"
{"stream":"web","from":"2026-11-29T16:00:00.000000Z","to":"2026-12-01T16:00:00.000000Z","intervals":[{"start":"2026-11-30T00:00:00+08:00","count":7},{"start":"2026-12-01T00:00:00+08:00","count":0}]}
start,count
2026-11-30T00:00:00+08:00,7
2026-12-01T00:00:00+08:00,0

{"stream":"web","from":null,"to":null,"subjects":[{"subject":"/a,b","count":7},{"subject":"/","count":3}]}
subject,count
"/a,b",7
/,3
"#);
    for (query, code) in [
        ("&grain=year", "query_grain"),
        ("&zone=Taipei", "query_zone"),
        ("&grain=week&week_start=Sun", "query_week_start"),
        ("&format=xml", "query_format"),
        ("&from=yesterday", "query_time"),
        ("&from=2026-12-01T00:00:00Z&to=2026-12-01T00:00:00Z", "query_span"),
        ("&top=0", "query_limit"),
        ("&top=2&grain=day", "query_conflict"),
        ("&grain=bucket", "query_span"),
    ] {
        let got = get(query).await;
        assert_eq!((got.status.as_u16(), got.code().as_str()), (400, code), "{query}");
    }
    let got = client.get("/v1/tenants/7/report").empty().await;
    assert_eq!(got.code(), "query_missing");
}
