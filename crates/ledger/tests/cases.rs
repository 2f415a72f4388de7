//! Bodies of every kind, and what can be wrong in them: the material of `codes`.

use counterfoil_ledger::{
    Capture, Close, Expire, ExpireBody, Hold, Limit, NewAsset, Open, Release, Reverse, Transfer, codes,
};
use serde_json::{Value, json};

use crate::world::World;

/// Things in every state there is.
pub struct Ids {
    live: String,
    captured: String,
    released: String,
    /// Its time has passed, and no worker has seen it.
    past: String,
    expired: String,
    reversed: String,
    reversal: String,
    /// Transfers whose reversal goes wrong for one reason after the other.
    reversed_of_shut: String,
    of_shut_and_huge: String,
    of_huge_and_poor: String,
    of_poor_and_full: String,
    of_full: String,
}

/// An id of nothing.
const NOBODY: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff";
const MAX: &str = "999999999999999999999999999999999999.99";

fn transfer(world: &mut World, from: &str, to: &str, amount: &str) -> String {
    world
        .run::<Transfer>(&json!({"from": from, "to": to, "amount": amount}).to_string())
        .ok()
        .id()
        .to_string()
}

fn legs(world: &mut World, legs: &[(&str, &str)]) -> String {
    let legs: Vec<_> = legs
        .iter()
        .map(|(account, amount)| json!({"account": account, "amount": amount}))
        .collect();
    world
        .run::<Transfer>(&json!({ "legs": legs }).to_string())
        .ok()
        .id()
        .to_string()
}

/// An account of each sort, and ids of holds and transfers in each state.
pub fn world() -> (World, Ids) {
    let mut world = World::new();
    let w = &mut world;
    for asset in ["USD", "EUR"] {
        w.run::<NewAsset>(&json!({"code": asset, "scale": 2}).to_string()).ok();
    }
    for (code, asset) in [("euro", "EUR"), ("euro2", "EUR")] {
        w.run::<Open>(&json!({"account": code, "asset": asset}).to_string())
            .ok();
    }
    for code in ["cash", "bank", "shut", "poor", "full", "mint", "huge", "held", "rich"] {
        w.run::<Open>(&json!({"account": code, "asset": "USD"}).to_string())
            .ok();
    }
    transfer(w, "mint", "huge", MAX);
    transfer(w, "bank", "rich", "10");
    let hold = |w: &mut World, body: Value| w.run::<Hold>(&body.to_string()).ok().id().to_string();
    hold(w, json!({"account": "held", "amount": MAX}));
    let ten = json!({"account": "cash", "amount": "10"});
    let (live, captured, released) = (hold(w, ten.clone()), hold(w, ten.clone()), hold(w, ten));
    w.run::<Capture>(&json!({"hold": captured, "to": "bank"}).to_string())
        .ok();
    w.run::<Release>(&json!({"hold": released}).to_string()).ok();
    let soon = json!({"account": "cash", "amount": "10", "expires_in": 1});
    let (past, expired) = (hold(w, soon.clone()), hold(w, soon));
    w.tick(2);
    let mut batch = w.batch();
    batch
        .apply::<Expire>(
            &ExpireBody {
                hold: expired.parse().unwrap(),
            },
            "",
        )
        .ok();
    batch.save();

    let reverse = |w: &mut World, id: &str| {
        w.run::<Reverse>(&json!({"transfer": id}).to_string())
            .ok()
            .id()
            .to_string()
    };
    let reversed = transfer(w, "cash", "bank", "1");
    let reversal = reverse(w, &reversed);
    let reversed_of_shut = transfer(w, "cash", "shut", "1");
    reverse(w, &reversed_of_shut);
    // Each pair of these is given back by the one after, so that only their reversals go wrong.
    let of_shut_and_huge = legs(w, &[("shut", "1"), ("huge", "-1")]);
    let of_huge_and_poor = legs(w, &[("huge", "-1"), ("poor", "1")]);
    let of_poor_and_full = legs(w, &[("poor", "1"), ("full", "-1")]);
    let of_full = legs(w, &[("full", "-1"), ("cash", "1")]);
    legs(
        w,
        &[
            ("shut", "-1"),
            ("huge", "2"),
            ("poor", "-2"),
            ("full", "2"),
            ("cash", "-1"),
        ],
    );
    w.run::<Close>(r#"{"account":"shut"}"#).ok();
    w.run::<Limit>(r#"{"account":"poor","floor":"0"}"#).ok();
    w.run::<Limit>(r#"{"account":"full","ceiling":"0"}"#).ok();
    let ids = Ids {
        live,
        captured,
        released,
        past,
        expired,
        reversed,
        reversal,
        reversed_of_shut,
        of_shut_and_huge,
        of_huge_and_poor,
        of_poor_and_full,
        of_full,
    };
    (world, ids)
}

/// A way to get one code out of a kind. Two that change the same field exclude each other.
pub struct Fault {
    pub code: &'static str,
    /// Members to set, or for `legs+` items to put in front of the list.
    pub change: Value,
}

fn fault(code: &'static str, change: Value) -> Fault {
    Fault { code, change }
}

pub struct Case {
    pub kind: &'static str,
    pub body: Value,
    pub faults: Vec<Fault>,
    /// Bodies for what cannot be put together from two changes.
    pub more: Vec<(&'static str, Value)>,
}

pub fn two(first: (&str, &str), second: (&str, &str)) -> Value {
    json!([{"account": first.0, "amount": first.1}, {"account": second.0, "amount": second.1}])
}

/// What texts, times and amounts of a body can be wrong in, whatever the kind.
fn texts(field: &str) -> Vec<Fault> {
    vec![
        fault(codes::TEXT_NUL, json!({field: "a\u{0}"})),
        fault(codes::TEXT_TOO_LONG, json!({field: "x".repeat(1025)})),
    ]
}

fn about() -> Vec<Fault> {
    let mut faults = vec![fault(codes::TIME_INVALID, json!({"effective_at": "yesterday"}))];
    faults.extend(texts("description"));
    faults.push(fault(
        codes::METADATA_TOO_LARGE,
        json!({"metadata": {"a": "x".repeat(16 * 1024)}}),
    ));
    faults.push(fault(codes::METADATA_INVALID, json!({"metadata": []})));
    faults
}

fn amounts(field: &str) -> Vec<Fault> {
    vec![
        fault(codes::AMOUNT_INVALID, json!({field: "1e3"})),
        fault(codes::AMOUNT_TOO_LONG, json!({field: format!("1{}", "0".repeat(40))})),
        fault(codes::AMOUNT_ZERO, json!({field: "-0"})),
        fault(codes::AMOUNT_NEGATIVE, json!({field: "-1"})),
    ]
}

fn accounts() -> Vec<Case> {
    let nines = "9".repeat(38);
    vec![
        Case {
            kind: "ledger.asset",
            body: json!({"code": "GBP", "scale": 2}),
            faults: vec![
                fault(codes::ASSET_CODE_INVALID, json!({"code": "a b"})),
                fault(codes::SCALE_OUT_OF_RANGE, json!({"scale": 19})),
                fault(codes::ASSET_EXISTS, json!({"code": "USD"})),
            ],
            more: vec![],
        },
        Case {
            kind: "ledger.open",
            body: json!({"account": "new", "asset": "USD"}),
            faults: vec![
                fault(codes::ACCOUNT_CODE_INVALID, json!({"account": " new"})),
                fault(codes::ASSET_CODE_INVALID, json!({"asset": ""})),
                fault(codes::AMOUNT_INVALID, json!({"floor": ".5"})),
                fault(codes::AMOUNT_TOO_LONG, json!({"ceiling": "0.0000000000000000001"})),
                fault(codes::LIMITS_REVERSED, json!({"floor": "2", "ceiling": "1"})),
                fault(codes::LIMITS_EXCLUDE_ZERO, json!({"floor": "1"})),
                fault(codes::LIMITS_EXCLUDE_ZERO, json!({"ceiling": "-1"})),
                fault(codes::TEXT_NUL, json!({"metadata": {"a": "\u{0}"}})),
                fault(
                    codes::METADATA_TOO_LARGE,
                    json!({"metadata": {"a": "x".repeat(16 * 1024)}}),
                ),
                fault(codes::METADATA_INVALID, json!({"metadata": "text"})),
                fault(codes::ASSET_UNKNOWN, json!({"asset": "NOK"})),
                fault(codes::ACCOUNT_EXISTS, json!({"account": "cash"})),
                fault(codes::AMOUNT_TOO_FINE, json!({"ceiling": "1.005"})),
                fault(codes::AMOUNT_TOO_LARGE, json!({"floor": format!("-{nines}")})),
            ],
            more: vec![],
        },
        Case {
            kind: "ledger.limit",
            body: json!({"account": "cash", "floor": "-1000", "ceiling": "1000"}),
            faults: vec![
                fault(codes::ACCOUNT_CODE_INVALID, json!({"account": ""})),
                fault(codes::AMOUNT_INVALID, json!({"floor": "+1"})),
                fault(codes::AMOUNT_TOO_LONG, json!({"ceiling": "0.0000000000000000001"})),
                fault(codes::LIMIT_EMPTY, json!({"floor": null, "ceiling": null})),
                fault(codes::LIMITS_REVERSED, json!({"floor": "2", "ceiling": "1"})),
                fault(codes::ACCOUNT_UNKNOWN, json!({"account": "nobody"})),
                fault(codes::ACCOUNT_CLOSED, json!({"account": "shut"})),
                fault(codes::AMOUNT_TOO_FINE, json!({"ceiling": "1000.005"})),
                fault(codes::AMOUNT_TOO_LARGE, json!({"floor": format!("-{nines}")})),
                fault(codes::LIMIT_VIOLATED, json!({"floor": "500"})),
                fault(codes::LIMIT_VIOLATED, json!({"ceiling": "-500"})),
            ],
            more: vec![],
        },
        Case {
            kind: "ledger.close",
            body: json!({"account": "euro2"}),
            faults: vec![
                fault(codes::ACCOUNT_CODE_INVALID, json!({"account": "\u{7f}"})),
                fault(codes::ACCOUNT_UNKNOWN, json!({"account": "nobody"})),
                fault(codes::ACCOUNT_CLOSED, json!({"account": "shut"})),
                fault(codes::ACCOUNT_NOT_EMPTY, json!({"account": "cash"})),
                fault(codes::ACCOUNT_HAS_HOLDS, json!({"account": "held"})),
            ],
            more: vec![],
        },
    ]
}

/// Two more legs that are wrong in one way.
fn legs_fault(code: &'static str, first: (&str, &str), second: (&str, &str)) -> Fault {
    fault(code, json!({"legs+": two(first, second)}))
}

/// What the accounts and amounts of legs can be wrong in: before the sum of each asset, and after it.
fn of_any_legs() -> [Vec<Fault>; 3] {
    let (nines, minus_nines) = ("9".repeat(38), format!("-{}", "9".repeat(38)));
    [
        vec![
            legs_fault(codes::ACCOUNT_UNKNOWN, ("nobody", "-1"), ("bank", "1")),
            legs_fault(codes::ACCOUNT_CLOSED, ("shut", "-1"), ("bank", "1")),
        ],
        vec![
            legs_fault(codes::AMOUNT_TOO_FINE, ("cash", "-0.001"), ("bank", "0.001")),
            legs_fault(codes::AMOUNT_TOO_LARGE, ("cash", &minus_nines), ("bank", &nines)),
        ],
        vec![
            legs_fault(codes::BALANCE_OVERFLOW, ("huge", "0.01"), ("bank", "-0.01")),
            legs_fault(codes::FLOOR_CROSSED, ("poor", "-1"), ("bank", "1")),
            legs_fault(codes::CEILING_CROSSED, ("full", "1"), ("bank", "-1")),
        ],
    ]
}

fn long_transfer() -> Case {
    let pair = two(("cash", "-1"), ("bank", "1"));
    let many: Vec<_> = (0..50).flat_map(|_| pair.as_array().unwrap().clone()).collect();
    let expect = |account: &str, version: i64| json!({"expect+": [{"account": account, "version": version}]});
    let [accounts, amounts, limits] = of_any_legs();
    let mut faults = vec![
        fault(codes::LEGS_COUNT, json!({"legs+": many})),
        legs_fault(codes::ACCOUNT_CODE_INVALID, (" cash", "-1"), ("bank", "1")),
        fault(
            codes::LEGS_UNBALANCED,
            json!({"legs+": [{"account": "cash", "amount": "0.01"}]}),
        ),
        fault(codes::EXPECT_INVALID, expect("euro2", 1)),
        fault(codes::EXPECT_INVALID, expect("cash", 0)),
    ];
    faults.extend(accounts);
    faults.push(fault(codes::VERSION_CONFLICT, expect("bank", 999)));
    faults.extend(amounts);
    faults.push(legs_fault(codes::ASSET_UNBALANCED, ("euro", "-1"), ("bank", "1")));
    faults.extend(limits);
    let once = json!({"account": "cash", "version": 1});
    let twice = json!({"legs": two(("cash", "1"), ("bank", "-1")), "expect": [once, once]});
    Case {
        kind: "ledger.transfer",
        body: json!({"legs": pair, "expect": []}),
        faults,
        more: vec![
            (
                codes::AMOUNT_ZERO,
                json!({"legs": two(("cash", "0.00"), ("bank", "0"))}),
            ),
            (
                codes::AMOUNT_INVALID,
                json!({"legs": two(("cash", "NaN"), (" bank", "0"))}),
            ),
            (codes::SAME_ACCOUNT, json!({"legs": two(("cash", "1"), ("cash", "2"))})),
            (codes::EXPECT_INVALID, twice),
            (codes::TRANSFER_SHAPE, json!({"legs": [], "from": "cash"})),
            (codes::LEGS_COUNT, json!({"legs": []})),
        ],
    }
}

fn short_transfer() -> Case {
    let expect = |account: &str, version: i64| json!({"expect": [{"account": account, "version": version}]});
    let mut faults = vec![
        fault(codes::TRANSFER_SHAPE, json!({"to": null})),
        fault(codes::ACCOUNT_CODE_INVALID, json!({"from": ""})),
    ];
    faults.extend(amounts("amount"));
    faults.push(fault(codes::SAME_ACCOUNT, json!({"from": "bank"})));
    faults.push(fault(codes::EXPECT_INVALID, expect("euro2", 1)));
    faults.extend(about());
    faults.extend([
        fault(codes::ACCOUNT_UNKNOWN, json!({"from": "nobody"})),
        fault(codes::ACCOUNT_CLOSED, json!({"from": "shut"})),
        fault(codes::VERSION_CONFLICT, expect("bank", 999)),
        fault(codes::ASSET_MISMATCH, json!({"from": "euro"})),
        fault(codes::AMOUNT_TOO_FINE, json!({"amount": "1.005"})),
        fault(codes::AMOUNT_TOO_LARGE, json!({"amount": "9".repeat(38)})),
        fault(codes::BALANCE_OVERFLOW, json!({"from": "mint"})),
        fault(codes::FLOOR_CROSSED, json!({"from": "poor"})),
    ]);
    let pay = |from: &str, to: &str| json!({"from": from, "to": to, "amount": "1"});
    let more = vec![
        (codes::CEILING_CROSSED, pay("cash", "full")),
        (codes::FLOOR_CROSSED, pay("poor", "full")),
    ];
    Case {
        kind: "ledger.transfer",
        body: pay("cash", "bank"),
        faults,
        more,
    }
}

fn reversal(ids: &Ids) -> Case {
    let mut faults = vec![
        fault(codes::NAME_SHAPE, json!({"transfer_key": "key"})),
        fault(
            codes::ID_INVALID,
            json!({"transfer": "01890a5dac96774bbcceb302099a8057"}),
        ),
    ];
    faults.extend(about());
    faults.extend([
        fault(codes::TRANSFER_UNKNOWN, json!({"transfer": NOBODY})),
        fault(codes::TRANSFER_IS_REVERSAL, json!({"transfer": ids.reversal})),
        fault(codes::TRANSFER_REVERSED, json!({"transfer": ids.reversed})),
    ]);
    let by_id = |id: &str| json!({"transfer": id});
    let more = vec![
        (codes::NAME_SHAPE, json!({})),
        (codes::TRANSFER_REVERSED, by_id(&ids.reversed_of_shut)),
        (codes::ACCOUNT_CLOSED, by_id(&ids.of_shut_and_huge)),
        (codes::BALANCE_OVERFLOW, by_id(&ids.of_huge_and_poor)),
        (codes::FLOOR_CROSSED, by_id(&ids.of_poor_and_full)),
        (codes::CEILING_CROSSED, by_id(&ids.of_full)),
    ];
    Case {
        kind: "ledger.reverse",
        body: by_id(&ids.of_full),
        faults,
        more,
    }
}

fn import() -> Case {
    let euro = |account: &str| json!({"account": account, "amount": "-1", "asset": "EUR"});
    let with_bank = |leg: Value| json!({"legs+": [leg, {"account": "bank", "amount": "1"}]});
    let [accounts, amounts, limits] = of_any_legs();
    let mut faults = vec![fault(codes::SOURCE_EXISTS, json!({"source": "taken"}))];
    faults.extend(accounts);
    faults.push(fault(codes::ASSET_MISMATCH, with_bank(euro("cash"))));
    faults.extend(amounts);
    faults.push(fault(codes::ASSET_UNBALANCED, with_bank(euro("euro"))));
    faults.extend(limits);
    let body = json!({"source": "new", "legs": two(("cash", "-1"), ("bank", "1"))});
    Case {
        kind: "ledger.import",
        body,
        faults,
        more: vec![],
    }
}

fn transfers(ids: &Ids) -> Vec<Case> {
    vec![long_transfer(), short_transfer(), reversal(ids), import()]
}

fn holds(ids: &Ids) -> Vec<Case> {
    let nines = "9".repeat(38);
    let states = || {
        vec![
            fault(codes::HOLD_UNKNOWN, json!({"hold": NOBODY})),
            fault(codes::HOLD_CAPTURED, json!({"hold": ids.captured})),
            fault(codes::HOLD_RELEASED, json!({"hold": ids.released})),
            fault(codes::HOLD_EXPIRED, json!({"hold": ids.past})),
            fault(codes::HOLD_EXPIRED, json!({"hold": ids.expired})),
        ]
    };
    let names = || {
        vec![
            fault(codes::NAME_SHAPE, json!({"hold": null})),
            fault(codes::ID_INVALID, json!({"hold": "7"})),
        ]
    };
    let mut hold = vec![fault(codes::ACCOUNT_CODE_INVALID, json!({"account": "a\u{0}"}))];
    hold.extend(amounts("amount"));
    hold.extend([
        fault(codes::EXPIRY_SHAPE, json!({"expires_in": 0})),
        fault(
            codes::EXPIRY_SHAPE,
            json!({"expires_in": 9, "expires_at": "2030-01-01T00:00:00Z"}),
        ),
        fault(codes::TIME_INVALID, json!({"expires_at": "2030-01-01"})),
    ]);
    hold.extend(texts("note"));
    hold.extend([
        fault(codes::ACCOUNT_UNKNOWN, json!({"account": "nobody"})),
        fault(codes::ACCOUNT_CLOSED, json!({"account": "shut"})),
        fault(codes::AMOUNT_TOO_FINE, json!({"amount": "1.005"})),
        fault(codes::AMOUNT_TOO_LARGE, json!({"amount": nines})),
        fault(codes::EXPIRY_PASSED, json!({"expires_at": "2026-01-31T12:00:02Z"})),
        fault(codes::BALANCE_OVERFLOW, json!({"account": "held"})),
        fault(codes::FLOOR_CROSSED, json!({"account": "poor"})),
    ]);
    let mut capture = names();
    capture.push(fault(codes::ACCOUNT_CODE_INVALID, json!({"to": ""})));
    capture.extend(amounts("amount"));
    capture.extend(about());
    capture.extend(states());
    capture.extend([
        fault(codes::CAPTURE_TO_SELF, json!({"to": "cash"})),
        fault(codes::ACCOUNT_UNKNOWN, json!({"to": "nobody"})),
        fault(codes::ACCOUNT_CLOSED, json!({"to": "shut"})),
        fault(codes::ASSET_MISMATCH, json!({"to": "euro"})),
        fault(codes::AMOUNT_TOO_FINE, json!({"amount": "1.005"})),
        fault(codes::AMOUNT_TOO_LARGE, json!({"amount": nines})),
        fault(codes::CAPTURE_TOO_LARGE, json!({"amount": "10.01"})),
        fault(codes::BALANCE_OVERFLOW, json!({"to": "huge"})),
        fault(codes::CEILING_CROSSED, json!({"to": "full"})),
    ]);
    let mut release = names();
    release.extend(states());
    let mut expire = states();
    // Due, so that it is no fault here; the next one is not.
    expire.retain(|fault| fault.change["hold"] != json!(ids.past));
    expire.push(fault(codes::HOLD_NOT_DUE, json!({"hold": ids.live})));
    vec![
        Case {
            kind: "ledger.hold",
            body: json!({"account": "cash", "amount": "1"}),
            faults: hold,
            more: vec![],
        },
        Case {
            kind: "ledger.capture",
            body: json!({"hold": ids.live, "to": "bank"}),
            faults: capture,
            more: vec![(
                codes::NAME_SHAPE,
                json!({"hold": ids.live, "hold_key": "key", "to": "bank"}),
            )],
        },
        Case {
            kind: "ledger.release",
            body: json!({"hold": ids.live}),
            faults: release,
            more: vec![],
        },
        Case {
            kind: "ledger.expire",
            body: json!({"hold": ids.past}),
            faults: expire,
            more: vec![],
        },
    ]
}

pub fn cases(ids: &Ids) -> Vec<Case> {
    let mut all = accounts();
    all.extend(transfers(ids));
    all.extend(holds(ids));
    all
}
