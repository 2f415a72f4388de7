//! The kinds through real lanes, on the oldest and the newest PostgreSQL.

use counterfoil_intent::Limits;
use counterfoil_test::Server;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::database::{Ledger, came, fresh};

#[tokio::test]
async fn open_transfer_hold_capture_and_reverse_in_one_batch_work_in_order() {
    for server in Server::ALL {
        let ledger = Ledger::new(server).await;
        let (hold, paid) = (fresh(), fresh());
        let of = |key: &str, kind: &str, body: Value| ledger.intent_of(ledger.tenant, key, kind, &body);
        let intents = vec![
            ledger.intent("ledger.asset", &json!({"code": "USD", "scale": 2})),
            ledger.intent("ledger.open", &json!({"account": "a", "asset": "USD"})),
            ledger.intent("ledger.open", &json!({"account": "b", "asset": "USD", "floor": "0"})),
            of(
                &paid,
                "ledger.transfer",
                json!({"from": "a", "to": "b", "amount": "10"}),
            ),
            of(&hold, "ledger.hold", json!({"account": "b", "amount": "8"})),
            ledger.intent("ledger.transfer", &json!({"from": "b", "to": "a", "amount": "3"})),
            ledger.intent("ledger.capture", &json!({"hold_key": hold, "to": "a", "amount": "3"})),
            ledger.intent("ledger.release", &json!({"hold_key": hold})),
            ledger.intent("ledger.capture", &json!({"hold_key": hold, "to": "a"})),
            ledger.intent("ledger.reverse", &json!({"transfer_key": paid})),
            ledger.intent("ledger.transfer", &json!({"from": "a", "to": "b", "amount": "3"})),
            ledger.intent("ledger.reverse", &json!({"transfer_key": paid})),
            ledger.intent("ledger.reverse", &json!({"transfer_key": paid})),
        ];
        let codes: Vec<_> = ledger
            .submit(intents)
            .await
            .iter()
            .map(|came| came.code().to_owned())
            .collect();
        let expected = [
            "accepted",
            "accepted",
            "accepted",
            "accepted",
            "accepted",
            "floor_crossed",
            "accepted",
            "accepted",
            "hold_released",
            "floor_crossed",
            "accepted",
            "accepted",
            "transfer_reversed",
        ];
        assert_eq!(codes, expected, "{server:?}");
        assert_eq!(ledger.figures("b").await, ("0.00".into(), "0.00".into(), "0.00".into()));
        ledger.assert_whole().await;
    }
}

#[tokio::test]
async fn what_one_batch_made_the_next_ones_name_by_id_and_by_key() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("a", None), ("b", None)]).await;
        let (hold_key, paid_key) = (fresh(), fresh());
        let of = |key: &str, kind: &str, body: Value| ledger.intent_of(ledger.tenant, key, kind, &body);
        let made = ledger.submit(vec![
            of(&hold_key, "ledger.hold", json!({"account": "a", "amount": "8"})),
            of(&paid_key, "ledger.transfer", json!({"legs": [
                {"account": "a", "amount": "-7"}, {"account": "b", "amount": "2"}, {"account": "b", "amount": "5"},
            ]})),
        ]).await;
        let (hold, paid) = (made[0].id("hold"), made[1].id("transfer"));
        ledger
            .run(
                "ledger.capture",
                json!({"hold": hold.to_string(), "to": "b", "amount": "1"}),
            )
            .await
            .ok();
        ledger
            .run(
                "ledger.capture",
                json!({"hold_key": hold_key, "to": "b", "amount": "2"}),
            )
            .await
            .ok();
        ledger
            .run("ledger.reverse", json!({"transfer_key": paid_key}))
            .await
            .ok();
        let again = ledger
            .run("ledger.reverse", json!({"transfer": paid.to_string()}))
            .await;
        assert_eq!(again.code(), "transfer_reversed");
        // An intent that made none, and one that made another noun.
        for body in [json!({"hold_key": fresh()}), json!({"hold_key": paid_key})] {
            assert_eq!(ledger.run("ledger.release", body).await.code(), "hold_unknown");
        }
        ledger.run("ledger.release", json!({"hold_key": hold_key})).await.ok();
        assert_eq!(
            ledger.figures("a").await,
            ("-3.00".into(), "0.00".into(), "-3.00".into())
        );
        assert_eq!(ledger.figures("b").await.0, "3.00");
        ledger.assert_whole().await;
    }
}

#[tokio::test]
async fn an_all_is_undone_as_a_whole_when_one_of_its_effects_is_refused() {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("a", None), ("b", Some("0"))]).await;
    let all = |amount: &str| {
        json!({"key": fresh(), "all": [
            {"kind": "ledger.open", "body": {"account": format!("new {amount}"), "asset": "USD"}},
            {"kind": "ledger.transfer", "body": {"from": "a", "to": format!("new {amount}"), "amount": "5"}},
            {"kind": "ledger.hold", "body": {"account": format!("new {amount}"), "amount": "1"}},
            {"kind": "ledger.transfer", "body": {"from": "b", "to": "a", "amount": amount}},
        ]})
        .to_string()
    };
    ledger.pay("a", "b", "10").await.ok();
    let refused = ledger
        .submit(vec![ledger.read(ledger.tenant, &all("11"))])
        .await
        .remove(0);
    assert_eq!(refused.code(), "floor_crossed");
    let tx = ledger.app().await;
    let gone = counterfoil_ledger::read::account(&ledger.scope(), &tx, "new 11")
        .await
        .unwrap();
    tx.rollback().await;
    assert!(gone.is_none());
    let accepted = ledger
        .submit(vec![ledger.read(ledger.tenant, &all("9"))])
        .await
        .remove(0);
    accepted.ok();
    assert_eq!(
        ledger.figures("new 9").await,
        ("5.00".into(), "1.00".into(), "4.00".into())
    );
    ledger.assert_whole().await;
}

#[tokio::test]
async fn the_first_use_of_an_account_by_64_callers_over_two_servers_never_goes_below_its_floor() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("bank", None)]).await;
        let other = ledger.other_lanes().await;
        // Everybody opens it, pays 10 in once and takes 3 out.
        let callers = (0..64).map(|i| {
            let intents = vec![
                ledger.intent("ledger.open", &json!({"account": "new", "asset": "USD", "floor": "0"})),
                ledger.intent_of(
                    ledger.tenant,
                    "once",
                    "ledger.transfer",
                    &json!({
                        "from": "bank", "to": "new", "amount": "10",
                    }),
                ),
                ledger.intent("ledger.transfer", &json!({"from": "new", "to": "bank", "amount": "3"})),
            ];
            let lanes = if i % 2 == 0 {
                ledger.lanes.clone()
            } else {
                other.clone()
            };
            tokio::spawn(async move { lanes.submit(intents).await.iter().map(came).collect::<Vec<_>>() })
        });
        let (mut opened, mut first, mut taken) = (0, 0, 0);
        for caller in callers.collect::<Vec<_>>() {
            let came = caller.await.unwrap();
            opened += usize::from(came[0].accepted);
            first += usize::from(came[1].accepted && !came[1].replayed);
            taken += usize::from(came[2].accepted);
        }
        assert_eq!((opened, first, taken), (1, 1, 3), "{server:?}");
        assert_eq!(ledger.figures("new").await.0, "1.00");
        ledger.assert_whole().await;
    }
}

#[tokio::test]
async fn a_refused_transfer_replays_as_refused_after_money_has_arrived() {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("a", None), ("b", Some("0"))]).await;
    let body = json!({"from": "b", "to": "a", "amount": "1.50"});
    let key = fresh();
    let send = |body: Value| {
        let intent = ledger.intent_of(ledger.tenant, &key, "ledger.transfer", &body);
        async { ledger.lanes.submit(vec![intent]).await.remove(0) }
    };
    let first = came(&send(body.clone()).await);
    assert_eq!(first.code(), "floor_crossed");
    ledger.pay("a", "b", "100").await.ok();
    let again = came(&send(json!({"from": "b", "to": "a", "amount": "1.5"})).await);
    assert!(again.replayed);
    assert_eq!((again.result, again.recorded_at), (first.result, first.recorded_at));
    // Another body: the field that differs is named as the caller wrote it.
    for (body, differs) in [
        (json!({"from": "b", "to": "a", "amount": "2"}), "amount"),
        (json!({"from": "b", "to": "c", "amount": "1.5"}), "to"),
        (
            json!({"from": "b", "to": "a", "amount": "1.5", "description": "x"}),
            "description",
        ),
        (
            json!({"legs": [{"account": "b", "amount": "-1.5"}, {"account": "a", "amount": "1.5"}]}),
            "from",
        ),
    ] {
        match send(body).await {
            counterfoil_intent::Answer::Mismatch { field } => assert_eq!(field, format!("body.{differs}")),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_said_of_a_transfer_and_an_account_is_stored_as_it_was_said() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("bank", None)]).await;
        let metadata = json!({"b": [1, 0.1, "é\"\\u0000"], "a": {"x": null}, "big": 18446744073709551615_u64});
        ledger
            .run(
                "ledger.open",
                json!({"account": "två ord", "asset": "USD", "metadata": metadata}),
            )
            .await
            .ok();
        let body = json!({
            "from": "bank", "to": "två ord", "amount": "99999999999999999999999999999999999.99",
            "description": "line one\nline two", "metadata": metadata, "effective_at": "0001-01-01T00:00:00Z",
        });
        let id = ledger.run("ledger.transfer", body).await.id("transfer");
        let tx = ledger.app().await;
        let view = counterfoil_ledger::read::transfer(&ledger.scope(), &tx, id)
            .await
            .unwrap()
            .unwrap();
        let account = counterfoil_ledger::read::account(&ledger.scope(), &tx, "två ord")
            .await
            .unwrap()
            .unwrap();
        tx.rollback().await;
        for stored in [view.metadata, account.metadata] {
            assert_eq!(serde_json::from_str::<Value>(&stored.unwrap()).unwrap(), metadata);
        }
        assert_eq!(view.about.description.as_deref(), Some("line one\nline two"));
        assert_eq!(view.effective_at.to_string(), "0001-01-01T00:00:00Z");
        assert_eq!(account.posted.to_string(), "99999999999999999999999999999999999.99");
        ledger.assert_whole().await;
    }
}

#[tokio::test]
async fn refused_makers_leave_no_blanks() {
    let ledger = Ledger::new(Server::Pg15).await;
    let refused = ledger.run("ledger.open", json!({"account": "a", "asset": "USD"})).await;
    assert_eq!(refused.code(), "asset_unknown");
    for table in ["ledger_asset", "ledger_balance", "ledger_account"] {
        assert_eq!(
            ledger.count(&format!("SELECT count(*) FROM counterfoil.{table}")).await,
            0,
            "{table}"
        );
    }
    // And the row can be made afterwards.
    ledger.usd(&[("a", None)]).await;
    ledger.assert_whole().await;
}

/// A batch whose tenants are all held by somebody else comes to nothing. What it had made for them by
/// then must not stay behind: the next one would find rows that are neither there nor to be made.
#[tokio::test]
async fn a_batch_that_finds_its_rows_held_leaves_no_blanks() {
    for server in Server::DIRECT {
        let ledger = Ledger::new(server).await;
        ledger.usd(&[("bank", None)]).await;
        ledger
            .outside("BEGIN; SELECT FROM counterfoil.ledger_balance FOR UPDATE")
            .await;
        let intents = vec![
            ledger.intent("ledger.open", &json!({"account": "new", "asset": "USD"})),
            ledger.intent("ledger.transfer", &json!({"from": "bank", "to": "new", "amount": "1"})),
        ];
        let waits =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let release = async {
            while ledger.count(waits).await == 0 {
                tokio::task::yield_now().await;
            }
            ledger.outside("COMMIT").await;
        };
        let (landed, ()) = tokio::join!(ledger.submit(intents), release);
        for came in landed {
            came.ok();
        }
        ledger.assert_whole().await;
    }
}

/// A refusal that needed the database names the field as a fault would have that did not.
#[tokio::test]
async fn a_refusal_names_its_field_as_the_request_wrote_it() {
    let ledger = Ledger::new(Server::Pg15).await;
    ledger.usd(&[("till", Some("0"))]).await;
    let body = json!({"from": "till", "to": "nobody", "amount": "1"});
    let raw = |value: Value| RawValue::from_string(value.to_string()).unwrap();
    let whole = |value: Value| {
        let intent = ledger.kinds.intent(Limits::default(), ledger.tenant, None, &raw(value));
        intent.unwrap_or_else(|invalid| panic!("{invalid:?}"))
    };
    let open = json!({"kind": "ledger.open", "body": {"account": "other", "asset": "USD"}});
    let transfer = json!({"kind": "ledger.transfer", "body": body});
    let mut beside = body.clone();
    beside["key"] = "beside".into();
    let beside = ledger
        .kinds
        .intent_of(Limits::default(), ledger.tenant, None, "ledger.transfer", &raw(beside))
        .unwrap();
    let cases = [
        (
            whole(json!({"key": "body", "kind": "ledger.transfer", "body": body})),
            "body.to",
        ),
        (whole(json!({"key": "all", "all": [open, transfer]})), "all[1].body.to"),
        (beside, "to"),
    ];
    for (intent, field) in cases {
        let came = ledger.submit(vec![intent]).await.remove(0);
        assert_eq!(
            (came.code(), came.result["field"].as_str()),
            ("account_unknown", Some(field))
        );
    }
}

/// The readers of bodies would take the fields of an object in their order, too.
#[tokio::test]
async fn an_array_is_no_intent_and_no_body() {
    let ledger = Ledger::new(Server::Pg15).await;
    for text in [
        r#"["k","ledger.asset",{"code":"EUR","scale":2},null]"#,
        r#"{"key":"k","kind":"ledger.asset","body":["EUR",2]}"#,
        r#"{"key":"k","all":[{"kind":"ledger.asset","body":["EUR",2]}]}"#,
    ] {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        let read = ledger.kinds.intent(Limits::default(), ledger.tenant, None, &raw);
        assert_eq!(read.err().map(|invalid| invalid.code), Some("body_invalid"), "{text}");
    }
}
