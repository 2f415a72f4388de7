//! Small stories without a database, one rule each.

use counterfoil_ledger::{
    Capture, Close, Expire, ExpireBody, Hold, HoldState, Limit, NewAsset, Open, Release, Reverse, Transfer, codes,
};
use serde_json::json;
use uuid::Uuid;

use crate::world::{Came, World};

/// USD with two decimals, and these accounts in it: code and floor.
fn usd(accounts: &[(&str, Option<&str>)]) -> World {
    let mut world = World::new();
    world.run::<NewAsset>(r#"{"code":"USD","scale":2}"#).ok();
    for (code, floor) in accounts {
        let floor = floor.map(|floor| format!(r#","floor":"{floor}""#)).unwrap_or_default();
        world
            .run::<Open>(&format!(r#"{{"account":"{code}","asset":"USD"{floor}}}"#))
            .ok();
    }
    world
}

fn pay(world: &mut World, from: &str, to: &str, amount: &str) -> Came {
    world.run::<Transfer>(&json!({"from": from, "to": to, "amount": amount}).to_string())
}

fn hold(world: &mut World, amount: &str, expires_in: Option<i64>) -> Uuid {
    let body = json!({"account": "cash", "amount": amount, "expires_in": expires_in});
    world.run::<Hold>(&body.to_string()).ok().id()
}

#[test]
fn every_amount_that_is_none_is_refused_before_the_database() {
    let mut world = usd(&[("bank", None), ("cash", Some("0"))]);
    let before = world.picture();
    for (amount, code) in [
        ("1e3", codes::AMOUNT_INVALID),
        ("1_000", codes::AMOUNT_INVALID),
        (".5", codes::AMOUNT_INVALID),
        ("+1", codes::AMOUNT_INVALID),
        ("NaN", codes::AMOUNT_INVALID),
        (" 1", codes::AMOUNT_INVALID),
        ("1\u{0}", codes::AMOUNT_INVALID),
        ("-0", codes::AMOUNT_ZERO),
        ("0.00", codes::AMOUNT_ZERO),
        ("-1", codes::AMOUNT_NEGATIVE),
        (&format!("1{}", "0".repeat(40)), codes::AMOUNT_TOO_LONG),
    ] {
        let came = pay(&mut world, "bank", "cash", amount);
        assert!(
            matches!(&came, Came::Invalid { field, .. } if field == "amount"),
            "{amount:?}: {came:?}"
        );
        assert_eq!(came.code(), code, "{amount:?}");
    }
    // Only the database knows the scale.
    let came = pay(&mut world, "bank", "cash", "1.005");
    assert!(matches!(came, Came::Refused(_)) && came.code() == codes::AMOUNT_TOO_FINE);
    assert_eq!(world.picture(), before);
    for body in [
        r#"{"from":"bank","to":"cash","amount":1.5}"#,
        r#"{"from":"bank","to":"cash","amount":"1","tip":"1"}"#,
        r#"{"from":"bank","to":"cash","amount":"1","amount":"2"}"#,
        r#"{"from":"bank","to":"cash\ud800","amount":"1"}"#,
        r#"["bank","cash","1"]"#,
    ] {
        let code = world.run::<Transfer>(body).code();
        assert!(
            ["body_invalid", codes::TRANSFER_SHAPE].contains(&code),
            "{body}: {code}"
        );
    }
}

#[test]
fn the_legs_of_one_account_count_together() {
    let mut world = usd(&[("bank", None), ("cash", Some("0"))]);
    // Through the floor and back within one transfer: only the sum counts.
    let legs = json!({"legs": [
        {"account": "cash", "amount": "-5"}, {"account": "bank", "amount": "-2"},
        {"account": "cash", "amount": "7"},
    ]});
    let id = world.run::<Transfer>(&legs.to_string()).ok().id();
    let lines: Vec<_> = world.transfers[&id]
        .lines
        .iter()
        .map(|line| (line.version, line.amount))
        .collect();
    assert_eq!(lines, [(2, -500), (2, -200), (3, 700)]);
    assert_eq!((world.balance("cash").posted, world.balance("cash").version), (200, 3));
    world.check();
}

#[test]
fn an_account_under_its_floor_may_move_towards_it_and_not_away() {
    let mut world = usd(&[("bank", None), ("cash", Some("0"))]);
    // No kind brings an account there; a restored backup might.
    let id = counterfoil_ledger::AccountId::of("cash");
    world.balances.get_mut(&id).unwrap().posted = -500;
    assert_eq!(pay(&mut world, "cash", "bank", "1").code(), codes::FLOOR_CROSSED);
    pay(&mut world, "bank", "cash", "2").ok();
    assert_eq!(world.balance("cash").posted, -300);
    // Several legs that leave it where it is are no step away.
    let legs = json!({"legs": [
        {"account": "cash", "amount": "-1"}, {"account": "bank", "amount": "1"},
        {"account": "cash", "amount": "1"}, {"account": "bank", "amount": "-1"},
    ]});
    world.run::<Transfer>(&legs.to_string()).ok();
}

#[test]
fn an_account_over_its_ceiling_may_move_towards_it_and_not_away() {
    let mut world = usd(&[("bank", None), ("cash", None)]);
    pay(&mut world, "bank", "cash", "10").ok();
    let id = counterfoil_ledger::AccountId::of("cash");
    world.balances.get_mut(&id).unwrap().ceiling = Some(500);
    assert_eq!(pay(&mut world, "bank", "cash", "1").code(), codes::CEILING_CROSSED);
    pay(&mut world, "cash", "bank", "1").ok();
    hold(&mut world, "1", None);
    assert_eq!(world.balance("cash").posted, 900);
}

#[test]
fn a_hold_is_captured_in_parts_and_the_last_part_frees_the_rest() {
    let mut world = usd(&[("bank", None), ("cash", Some("0")), ("shop", None)]);
    pay(&mut world, "bank", "cash", "10").ok();
    let id = hold(&mut world, "8", None);
    assert_eq!(pay(&mut world, "cash", "bank", "3").code(), codes::FLOOR_CROSSED);
    let capture = |world: &mut World, amount: &str, last: bool| {
        world
            .run::<Capture>(&json!({"hold": id.to_string(), "to": "shop", "amount": amount, "final": last}).to_string())
    };
    assert!(capture(&mut world, "3", false).tells(r#""captured":"3.00","left":"5.00""#));
    assert_eq!(capture(&mut world, "5.01", false).code(), codes::CAPTURE_TOO_LARGE);
    let cash = world.balance("cash");
    assert_eq!((cash.posted, cash.held, cash.available()), (700, 500, 200));
    assert!(capture(&mut world, "1", true).tells(r#""captured":"1.00","left":"0.00""#));
    let cash = world.balance("cash");
    assert_eq!((cash.posted, cash.held, cash.available()), (600, 0, 600));
    assert_eq!(world.holds[&id].state, HoldState::Captured);
    assert_eq!(capture(&mut world, "1", false).code(), codes::HOLD_CAPTURED);
    assert_eq!(world.balance("shop").posted, 400);
    world.check();
}

#[test]
fn a_hold_holds_until_its_time_passes_and_not_a_moment_longer() {
    let mut world = usd(&[("bank", None), ("cash", Some("0"))]);
    pay(&mut world, "bank", "cash", "10").ok();
    let id = hold(&mut world, "8", Some(60));
    world.tick(59);
    assert_eq!(pay(&mut world, "cash", "bank", "3").code(), codes::FLOOR_CROSSED);
    world.tick(1);
    // No worker has seen it.
    assert_eq!(world.balance("cash").available(), 1_000);
    pay(&mut world, "cash", "bank", "9").ok();
    let named = json!({"hold": id.to_string(), "to": "bank"}).to_string();
    assert_eq!(world.run::<Capture>(&named).code(), codes::HOLD_EXPIRED);
    assert_eq!(
        world
            .run::<Release>(&json!({"hold": id.to_string()}).to_string())
            .code(),
        codes::HOLD_EXPIRED
    );
    let mut batch = world.batch();
    batch.apply::<Expire>(&ExpireBody { hold: id }, "").ok();
    batch.save();
    let cash = world.balance("cash");
    assert_eq!(
        (cash.posted, cash.held, cash.expired, cash.next_expiry),
        (100, 0, 0, None)
    );
    world.check();
}

#[test]
fn a_clock_that_steps_back_brings_no_hold_back_to_life() {
    let mut world = usd(&[("bank", None), ("cash", Some("0"))]);
    pay(&mut world, "bank", "cash", "10").ok();
    let id = hold(&mut world, "8", Some(60));
    world.tick(60);
    pay(&mut world, "cash", "bank", "9").ok();
    world.tick(-30);
    assert_eq!(world.balance("cash").available(), 100);
    let named = json!({"hold": id.to_string(), "to": "bank"}).to_string();
    assert_eq!(world.run::<Capture>(&named).code(), codes::HOLD_EXPIRED);
    // And what is written now is not written before what was written then.
    let before = world.balance("cash").changed_at;
    pay(&mut world, "bank", "cash", "1").ok();
    assert_eq!(world.balance("cash").changed_at, before);
    world.check();
}

#[test]
fn the_bound_on_the_next_expiry_moves_on_when_the_expired_holds_are_gone() {
    let mut world = usd(&[("cash", None)]);
    let (first, second) = (hold(&mut world, "1", Some(10)), hold(&mut world, "2", Some(100)));
    let bound = |world: &World| world.balance("cash").next_expiry;
    assert_eq!(bound(&world), world.holds[&first].expires_at);
    // Released before its time: the bound stays where it was, which is allowed, until somebody looks.
    world
        .run::<Release>(&json!({"hold": first.to_string()}).to_string())
        .ok();
    world.tick(20);
    let third = hold(&mut world, "4", None);
    assert_eq!(bound(&world), world.holds[&second].expires_at);
    world
        .run::<Release>(&json!({"hold": third.to_string()}).to_string())
        .ok();
    world.tick(100);
    assert_eq!(world.balance("cash").live(), 0);
}

#[test]
fn a_reversal_is_a_transfer_of_its_own_and_happens_once() {
    let mut world = usd(&[("bank", None), ("cash", None)]);
    let id = pay(&mut world, "bank", "cash", "5").ok().id();
    let named = json!({"transfer": id.to_string(), "description": "mistake"}).to_string();
    let back = world.run::<Reverse>(&named).ok().id();
    assert_eq!(world.transfers[&id].reversed_by, Some(back));
    assert_eq!(world.transfers[&back].about.reverses, Some(id));
    assert_eq!(world.run::<Reverse>(&named).code(), codes::TRANSFER_REVERSED);
    let of_back = json!({"transfer": back.to_string()}).to_string();
    assert_eq!(world.run::<Reverse>(&of_back).code(), codes::TRANSFER_IS_REVERSAL);
    assert_eq!((world.balance("bank").posted, world.balance("cash").posted), (0, 0));
}

#[test]
fn a_reversal_of_a_capture_gives_back_the_amount_and_not_the_hold() {
    let mut world = usd(&[("bank", None), ("cash", None)]);
    let id = hold(&mut world, "5", None);
    let taken = world
        .run::<Capture>(&json!({"hold": id.to_string(), "to": "bank"}).to_string())
        .ok()
        .id();
    world
        .run::<Reverse>(&json!({"transfer": taken.to_string()}).to_string())
        .ok();
    assert_eq!((world.balance("cash").posted, world.balance("cash").held), (0, 0));
    assert_eq!(world.holds[&id].state, HoldState::Captured);
    world.check();
}

#[test]
fn a_limit_that_is_not_said_stays_and_null_takes_it_away() {
    let mut world = usd(&[("bank", None), ("cash", Some("-5"))]);
    world.run::<Limit>(r#"{"account":"cash","ceiling":"5"}"#).ok();
    assert_eq!(
        (world.balance("cash").floor, world.balance("cash").ceiling),
        (Some(-500), Some(500))
    );
    world.run::<Limit>(r#"{"account":"cash","floor":null}"#).ok();
    assert_eq!(
        (world.balance("cash").floor, world.balance("cash").ceiling),
        (None, Some(500))
    );
    assert_eq!(pay(&mut world, "bank", "cash", "5.01").code(), codes::CEILING_CROSSED);
    pay(&mut world, "cash", "bank", "100").ok();
}

#[test]
fn an_account_closes_over_holds_that_have_expired_and_the_worker_still_gets_at_them() {
    let mut world = usd(&[("cash", None)]);
    let id = hold(&mut world, "5", Some(10));
    let close = r#"{"account":"cash"}"#;
    assert_eq!(world.run::<Close>(close).code(), codes::ACCOUNT_HAS_HOLDS);
    world.tick(10);
    world.run::<Close>(close).ok();
    let mut batch = world.batch();
    batch.apply::<Expire>(&ExpireBody { hold: id }, "").ok();
    batch.save();
    assert_eq!(world.balance("cash").held, 0);
    assert_eq!(
        world.run::<Open>(r#"{"account":"cash","asset":"USD"}"#).code(),
        codes::ACCOUNT_EXISTS
    );
}

#[test]
fn an_expected_version_is_that_of_the_moment() {
    let mut world = usd(&[("bank", None), ("cash", None)]);
    let pay = |world: &mut World, version: i64| {
        let expect = json!([{"account": "cash", "version": version}]);
        let body = json!({"from": "bank", "to": "cash", "amount": "1", "expect": expect});
        world.run::<Transfer>(&body.to_string())
    };
    pay(&mut world, 1).ok();
    assert_eq!(pay(&mut world, 1).code(), codes::VERSION_CONFLICT);
    hold(&mut world, "1", None);
    assert_eq!(pay(&mut world, 2).code(), codes::VERSION_CONFLICT);
    pay(&mut world, 3).ok();
}
