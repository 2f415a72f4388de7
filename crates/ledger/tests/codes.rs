//! `docs/reference/codes.md`: every code is there, in the order in which they are checked, and each
//! can be provoked. For each kind, each code alone, and each with every later one in the same body:
//! then the earlier wins, and nothing has changed.

use std::collections::{BTreeMap, BTreeSet};

use counterfoil_intent::{Invalid, Key, Limits};
use counterfoil_ledger::{
    AccountCode, AssetCode, Capture, Close, Decimal, Expire, ExpireBody, Hold, Import, ImportBody, Limit, NewAsset,
    Open, Release, Reverse, Transfer, codes,
};
use counterfoil_pg::TenantId;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::cases::{Fault, Ids, cases, two, world};
use crate::world::{Batch, Came, World};

/// Later faults go in front, where a check of one leg after the other would meet them first.
fn put_together(body: &Value, faults: &[&Fault]) -> Option<Value> {
    let mut out = body.clone();
    let mut set = BTreeSet::new();
    for fault in faults {
        for (name, value) in fault.change.as_object().unwrap() {
            let list = name.strip_suffix('+');
            if list.is_none() && !set.insert(name.clone()) {
                return None;
            }
            match (list, value) {
                (Some(list), Value::Array(items)) => {
                    let old = out[list].as_array()?.clone();
                    out[list] = items.iter().cloned().chain(old).collect();
                }
                (_, Value::Null) => drop(out.as_object_mut()?.remove(name)),
                _ => out[name] = value.clone(),
            }
        }
    }
    Some(out)
}

fn run(world: &mut World, kind: &str, body: &Value) -> Came {
    let text = body.to_string();
    let mut batch = world.batch();
    let came = match kind {
        "ledger.asset" => batch.run::<NewAsset>(&text),
        "ledger.open" => batch.run::<Open>(&text),
        "ledger.limit" => batch.run::<Limit>(&text),
        "ledger.close" => batch.run::<Close>(&text),
        "ledger.transfer" => batch.run::<Transfer>(&text),
        "ledger.hold" => batch.run::<Hold>(&text),
        "ledger.capture" => batch.run::<Capture>(&text),
        "ledger.release" => batch.run::<Release>(&text),
        "ledger.reverse" => batch.run::<Reverse>(&text),
        "ledger.import" => import(&mut batch, body),
        "ledger.expire" => {
            let hold = body["hold"].as_str().unwrap().parse().unwrap();
            batch.apply::<Expire>(&ExpireBody { hold }, "")
        }
        other => panic!("{other}"),
    };
    if matches!(came, Came::Accepted { .. }) && kind == "ledger.import" {
        batch.keep_source(body["source"].as_str().unwrap());
    }
    batch.save();
    came
}

fn import(batch: &mut Batch<'_>, body: &Value) -> Came {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let leg = |leg: &Value| {
        let account = AccountCode::new(&text(&leg["account"])).unwrap();
        let asset = leg.get("asset").map_or("USD".to_owned(), text);
        (
            account,
            AssetCode::new(&asset).unwrap(),
            Decimal::parse(&text(&leg["amount"])).unwrap(),
        )
    };
    let legs = body["legs"].as_array().unwrap().iter().map(leg).collect();
    match ImportBody::new(
        body["source"].as_str().unwrap(),
        legs,
        "2026-01-01T00:00:00Z".parse().unwrap(),
        None,
    ) {
        Ok(body) => batch.apply::<Import>(&body, ""),
        Err(Invalid { code, field, .. }) => Came::Invalid { code, field },
    }
}

fn fresh() -> (World, Ids) {
    let (mut world, ids) = world();
    run(
        &mut world,
        "ledger.import",
        &json!({"source": "taken", "legs": two(("cash", "-2"), ("bank", "2"))}),
    )
    .ok();
    (world, ids)
}

fn place(code: &str) -> usize {
    codes::ALL
        .iter()
        .position(|known| *known == code)
        .unwrap_or_else(|| panic!("{code} is not in codes.rs"))
}

/// What each code was provoked by: kinds, and whether it is known without the database.
fn provoke_all() -> BTreeMap<&'static str, (BTreeSet<&'static str>, BTreeSet<&'static str>)> {
    let mut seen: BTreeMap<_, (BTreeSet<_>, BTreeSet<_>)> = BTreeMap::new();
    let (mut world, ids) = fresh();
    let before = world.picture();
    let mut provoke = |kind: &'static str, body: &Value, code: &'static str| {
        let came = run(&mut world, kind, body);
        assert_eq!(came.code(), code, "{kind} {body}: {came:?}");
        assert_eq!(world.picture(), before, "{kind} {body} has changed something");
        let status = if matches!(came, Came::Invalid { .. }) {
            "400"
        } else {
            "409"
        };
        let (kinds, statuses) = seen.entry(code).or_default();
        kinds.insert(kind);
        statuses.insert(status);
    };
    for case in cases(&ids) {
        for fault in &case.faults {
            let body = put_together(&case.body, &[fault]).unwrap();
            provoke(case.kind, &body, fault.code);
        }
        for (code, body) in &case.more {
            provoke(case.kind, body, code);
        }
        let places: Vec<_> = case.faults.iter().map(|fault| place(fault.code)).collect();
        assert!(
            places.is_sorted(),
            "the faults of {} are not in the order of the codes",
            case.kind
        );
    }
    seen
}

#[test]
fn the_earlier_of_two_codes_wins_whatever_their_places_in_the_body() {
    let (mut world, ids) = fresh();
    let before = world.picture();
    let mut pairs = 0;
    for case in cases(&ids) {
        for (i, first) in case.faults.iter().enumerate() {
            for second in &case.faults[i + 1..] {
                if first.code == second.code {
                    continue;
                }
                let Some(body) = put_together(&case.body, &[first, second]) else {
                    continue;
                };
                // What the first takes away, the second cannot be wrong in; that is no pair.
                let came = run(&mut world, case.kind, &body);
                assert_eq!(
                    came.code(),
                    first.code,
                    "and not {} of {} {body}: {came:?}",
                    second.code,
                    case.kind
                );
                assert_eq!(world.picture(), before);
                pairs += 1;
            }
        }
    }
    assert!(pairs > 400, "{pairs} pairs");
}

/// The bodies that the faults are made of are good ones.
#[test]
fn without_a_fault_each_body_is_accepted() {
    let (_, ids) = fresh();
    for case in cases(&ids) {
        let (mut world, _) = fresh();
        let came = run(&mut world, case.kind, &case.body);
        let expected = if case.kind == "ledger.reverse" {
            codes::CEILING_CROSSED
        } else {
            "accepted"
        };
        assert_eq!(came.code(), expected, "{} {}: {came:?}", case.kind, case.body);
        world.check();
    }
}

/// One heading of the page: the code, its status and its kinds.
fn page() -> Vec<(String, String, BTreeSet<String>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/codes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let part = text
        .split("\n## ")
        .find(|part| part.starts_with("The ledger"))
        .expect("a section on the ledger");
    let mut out = Vec::new();
    for entry in part.split("\n### ").skip(1) {
        let mut lines = entry.lines();
        let code = lines.next().unwrap().trim().to_owned();
        let line = lines.find(|line| !line.trim().is_empty()).unwrap();
        let (status, kinds) = line.split_once(" · ").unwrap_or_else(|| panic!("{code}: {line}"));
        let kinds = kinds
            .split(", ")
            .map(|kind| kind.trim_matches('`').to_owned())
            .collect();
        let rest: String = lines.collect();
        assert!(rest.len() > 40, "{code} is not explained");
        out.push((code, status.to_owned(), kinds));
    }
    out
}

#[test]
fn the_page_lists_every_code_in_the_order_checked_with_its_status_and_kinds() {
    let page = page();
    let listed: Vec<_> = page.iter().map(|(code, ..)| code.as_str()).collect();
    assert_eq!(listed, codes::ALL);
    let seen = provoke_all();
    let unprovoked: Vec<_> = codes::ALL.iter().filter(|code| !seen.contains_key(*code)).collect();
    assert!(unprovoked.is_empty(), "never provoked: {unprovoked:?}");
    for (code, status, kinds) in &page {
        let (by, statuses) = &seen[code.as_str()];
        assert_eq!(
            statuses.iter().copied().collect::<Vec<_>>(),
            [status.as_str()],
            "{code}"
        );
        assert_eq!(kinds.iter().map(String::as_str).collect::<BTreeSet<_>>(), *by, "{code}");
    }
    let every: BTreeSet<_> = codes::ALL.iter().collect();
    assert_eq!(every.len(), codes::ALL.len(), "a code is there twice");
}

#[test]
fn the_page_lists_what_any_intent_and_any_row_can_be_wrong_in() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/codes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (world, _) = world();
    let intent = |json: &str| {
        let raw: Box<RawValue> = serde_json::from_str(json).unwrap();
        world
            .kinds
            .intent(Limits::default(), TenantId(1), None, &raw)
            .map(|_| ())
            .unwrap_err()
    };
    let body = |body: &str| format!(r#"{{"key":"k","kind":"ledger.close","body":{body}}}"#);
    let effect = r#"{"kind":"ledger.close","body":{"account":"cash"}}"#;
    for (code, field, json) in [
        ("body_invalid", "extra", r#"{"key":"k","extra":1}"#.to_owned()),
        ("key_missing", "key", r#"{"kind":"ledger.close","body":{}}"#.to_owned()),
        ("key_empty", "key", r#"{"key":""}"#.to_owned()),
        ("key_characters", "key", r#"{"key":"a b"}"#.to_owned()),
        ("key_too_long", "key", format!(r#"{{"key":"{}"}}"#, "x".repeat(256))),
        ("intent_shape", "", r#"{"key":"k","kind":"ledger.close"}"#.to_owned()),
        ("all_empty", "all", r#"{"key":"k","all":[]}"#.to_owned()),
        (
            "all_too_long",
            "all",
            format!(r#"{{"key":"k","all":[{}]}}"#, vec![effect; 101].join(",")),
        ),
        (
            "kind_unknown",
            "kind",
            r#"{"key":"k","kind":"ledger.burn","body":{}}"#.to_owned(),
        ),
        // Those that only our own workers make are none.
        (
            "kind_unknown",
            "kind",
            r#"{"key":"k","kind":"ledger.expire","body":{"hold":"k"}}"#.to_owned(),
        ),
        (
            "kind_unknown",
            "all[0].kind",
            r#"{"key":"k","all":[{"kind":"ledger.import","body":{}}]}"#.to_owned(),
        ),
        (
            "body_too_large",
            "body",
            body(&format!(r#"{{"account":"{}"}}"#, "x".repeat(65536))),
        ),
        ("body_invalid", "body.account", body(r#"{"account":1.5}"#)),
        (
            "body_invalid",
            "body.amount",
            body(r#"{"account":"cash","amount":"1"}"#),
        ),
        ("account_code_invalid", "body.account", body(r#"{"account":""}"#)),
    ] {
        let invalid = intent(&json);
        assert_eq!(
            (invalid.code, invalid.field.as_str()),
            (code, field),
            "{json:.80}: {invalid:?}"
        );
        assert!(text.contains(&format!("\n### {code}\n")), "{code} is not on the page");
    }
    for code in codes::OF_ROWS {
        assert!(text.contains(&format!("\n### {code}\n")), "{code} is not on the page");
    }
    assert!(Key::parse("key").is_ok());
}
