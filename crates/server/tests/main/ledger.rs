//! Rows for the engine of these tests.

use counterfoil_ledger::read::{AboutView, AccountView, BalanceAt, EntryView, HoldView, LegView, Money, TransferView};
use counterfoil_ledger::{AssetCode, HoldState};
use jiff::Timestamp;
use uuid::Uuid;

fn time() -> Timestamp {
    "2026-03-01T12:00:00.25Z".parse().unwrap()
}

fn euro() -> AssetCode {
    AssetCode::new("EUR").unwrap()
}

fn cents(minor: i128) -> Money {
    Money { minor, scale: 2 }
}

pub fn account(code: &str) -> AccountView {
    AccountView {
        code: code.to_owned(),
        asset: euro(),
        posted: cents(12_550),
        held: cents(2_000),
        available: cents(10_550),
        floor: Some(cents(0)),
        ceiling: None,
        version: 4,
        opened_at: time(),
        changed_at: time(),
        closed_at: None,
        metadata: Some(r#"{"till": 1}"#.to_owned()),
    }
}

pub fn balance() -> BalanceAt {
    BalanceAt {
        asset: euro(),
        posted: cents(-5),
        opened_at: time(),
    }
}

fn about() -> AboutView {
    AboutView {
        description: Some("say \"hi\"".to_owned()),
        reverses: None,
        reversed_by: Some(Uuid::from_u128(9)),
        captures: None,
    }
}

pub fn entry(version: i64) -> EntryView {
    EntryView {
        version,
        transfer: Uuid::from_u128(7),
        amount: cents(-100),
        posted: cents(400),
        recorded_at: time(),
        effective_at: time(),
        about: about(),
    }
}

pub fn transfer(id: Uuid) -> TransferView {
    let leg = |account: &str, amount, posted| LegView {
        account: account.to_owned(),
        asset: euro(),
        amount: cents(amount),
        version: 2,
        posted: cents(posted),
    };
    TransferView {
        id,
        about: about(),
        metadata: None,
        effective_at: time(),
        recorded_at: time(),
        entries: vec![leg("bank", -100, -100), leg("cash/1", 100, 100)],
    }
}

pub fn hold(id: Uuid) -> HoldView {
    HoldView {
        id,
        account: "cash/1".to_owned(),
        asset: euro(),
        amount: cents(2_000),
        captured: cents(0),
        state: HoldState::Active,
        expires_at: None,
        note: None,
        recorded_at: time(),
        changed_at: time(),
    }
}
