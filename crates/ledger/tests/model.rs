//! Random sequences of intents against a naive model: whole histories kept, everything counted
//! from the beginning each time, one check after the other in plain code.

use std::collections::BTreeMap;

use counterfoil_ledger::{
    Capture, Close, Expire, ExpireBody, Hold, HoldState, Limit, NewAsset, Open, Release, Reverse, Transfer, render,
};
use proptest::prelude::*;
use uuid::Uuid;

use crate::naive::{ACCOUNTS, Naive, NaiveAccount, NaiveHold, Op, Told, ops};
use crate::world::{Batch, Came, World};

fn limits(floor: Option<i64>, ceiling: Option<i64>, scale: u8) -> String {
    let limit = |name: &str, limit: Option<i64>| {
        limit
            .map(|limit| format!(r#","{name}":"{}""#, render(limit.into(), scale)))
            .unwrap_or_default()
    };
    limit("floor", floor) + &limit("ceiling", ceiling)
}

fn open(model: &mut Naive, batch: &mut Batch<'_>, op: &Op) -> (Came, Told) {
    let (account, floor, ceiling) = match op {
        Op::Open {
            account,
            floor,
            ceiling,
        }
        | Op::Limit {
            account,
            floor,
            ceiling,
        } => (*account, *floor, *ceiling),
        _ => unreachable!(),
    };
    let (code, asset, scale) = ACCOUNTS[account];
    let limits = limits(floor, ceiling, scale);
    let reversed = floor.zip(ceiling).is_some_and(|(floor, ceiling)| floor > ceiling);
    if matches!(op, Op::Open { .. }) {
        let came = batch.run::<Open>(&format!(r#"{{"account":"{code}","asset":"{asset}"{limits}}}"#));
        let told = if reversed {
            Err("limits_reversed")
        } else if floor.is_some_and(|floor| floor > 0) || ceiling.is_some_and(|ceiling| ceiling < 0) {
            Err("limits_exclude_zero")
        } else if model.accounts.contains_key(&account) {
            Err("account_exists")
        } else {
            let opened = NaiveAccount {
                floor,
                ceiling,
                closed: false,
                version: 1,
                seen: model.now,
            };
            model.accounts.insert(account, opened);
            model.as_of.insert(account, model.now);
            Ok(())
        };
        return (came, told);
    }
    let came = batch.run::<Limit>(&format!(r#"{{"account":"{code}"{limits}}}"#));
    let told = (|| {
        if floor.is_none() && ceiling.is_none() {
            return Err("limit_empty");
        }
        if reversed {
            return Err("limits_reversed");
        }
        model.open_ones(&[account])?;
        if floor.is_some_and(|floor| model.available(account) < floor)
            || ceiling.is_some_and(|ceiling| model.posted(account) > ceiling)
        {
            return Err("limit_violated");
        }
        model.attempt(&[account], |model| {
            let limited = model.accounts.get_mut(&account).unwrap();
            limited.floor = floor.or(limited.floor);
            limited.ceiling = ceiling.or(limited.ceiling);
            limited.version += 1;
        })
    })();
    (came, told)
}

fn transfer(model: &mut Naive, batch: &mut Batch<'_>, op: &Op) -> (Came, Told) {
    let Op::Transfer {
        from,
        to,
        amount,
        expect,
    } = op
    else {
        unreachable!()
    };
    let (from, to, amount, expect) = (*from, *to, *amount, *expect);
    let (source, target) = (ACCOUNTS[from], ACCOUNTS[to]);
    let expect_json = expect
        .map(|version| format!(r#","expect":[{{"account":"{}","version":{version}}}]"#, source.0))
        .unwrap_or_default();
    let came = batch.run::<Transfer>(&format!(
        r#"{{"from":"{}","to":"{}","amount":"{}"{expect_json}}}"#,
        source.0,
        target.0,
        render(amount.into(), source.2)
    ));
    let told = (|| {
        if from == to {
            return Err("same_account");
        }
        model.open_ones(&[from, to])?;
        if expect.is_some_and(|version| model.accounts[&from].version != version) {
            return Err("version_conflict");
        }
        if source.1 != target.1 {
            return Err("asset_mismatch");
        }
        let id = next(model);
        model.attempt(&[from, to], |model| {
            model.post(id, &[(from, -amount), (to, amount)], false)
        })
    })();
    (came, told)
}

/// The id that the next hold or transfer gets.
fn next(model: &Naive) -> Uuid {
    Uuid::from_u128((model.holds.len() + model.transfers.len() + 1) as u128)
}

fn legs(model: &mut Naive, batch: &mut Batch<'_>, legs: &[(usize, i64)]) -> (Came, Told) {
    // Balanced per asset by a last leg on the first account of it, where one is needed.
    let mut legs = legs.to_vec();
    for (first, asset) in [(0, "USD"), (3, "BTC")] {
        let sum: i64 = legs
            .iter()
            .filter(|(account, _)| ACCOUNTS[*account].1 == asset)
            .map(|(_, amount)| amount)
            .sum();
        if sum != 0 {
            legs.push((first, -sum));
        }
    }
    let written: Vec<_> = legs
        .iter()
        .map(|(account, amount)| {
            let (code, _, scale) = ACCOUNTS[*account];
            format!(
                r#"{{"account":"{code}","amount":"{}"}}"#,
                render((*amount).into(), scale)
            )
        })
        .collect();
    let came = batch.run::<Transfer>(&format!(r#"{{"legs":[{}]}}"#, written.join(",")));
    let told = (|| {
        if legs.len() < 2 {
            return Err("legs_count");
        }
        if legs.iter().any(|(_, amount)| *amount == 0) {
            return Err("amount_zero");
        }
        if legs.iter().all(|(account, _)| *account == legs[0].0) {
            return Err("same_account");
        }
        let accounts: Vec<_> = legs.iter().map(|(account, _)| *account).collect();
        model.open_ones(&accounts)?;
        let id = next(model);
        model.attempt(&accounts, |model| model.post(id, &legs, false))
    })();
    (came, told)
}

fn hold(
    model: &mut Naive,
    batch: &mut Batch<'_>,
    account: usize,
    amount: i64,
    expires_in: Option<i64>,
) -> (Came, Told) {
    let (code, _, scale) = ACCOUNTS[account];
    let expiry = expires_in
        .map(|seconds| format!(r#","expires_in":{seconds}"#))
        .unwrap_or_default();
    let amount_json = render(amount.into(), scale);
    let came = batch.run::<Hold>(&format!(r#"{{"account":"{code}","amount":"{amount_json}"{expiry}}}"#));
    let told = (|| {
        model.open_ones(&[account])?;
        let id = next(model);
        let time = model.now.max(model.accounts[&account].seen).max(model.time(account));
        let expires = expires_in.map(|seconds| time + seconds);
        model.attempt(&[account], |model| {
            model.accounts.get_mut(&account).unwrap().version += 1;
            model.holds.push(NaiveHold {
                id,
                account,
                amount,
                captured: 0,
                state: HoldState::Active,
                expires,
            });
        })
    })();
    (came, told)
}

fn capture(model: &mut Naive, batch: &mut Batch<'_>, op: &Op) -> (Came, Told) {
    let Op::Capture {
        hold: at,
        to,
        amount,
        last,
    } = op
    else {
        unreachable!()
    };
    let (at, to, last) = (*at, *to, *last);
    let id = model.holds.get(at).map_or(Uuid::max(), |hold| hold.id);
    let scale = model.holds.get(at).map_or(2, |hold| ACCOUNTS[hold.account].2);
    let amount_json = amount
        .map(|amount| format!(r#","amount":"{}""#, render(amount.into(), scale)))
        .unwrap_or_default();
    let to_code = ACCOUNTS[to].0;
    let came = batch.run::<Capture>(&format!(
        r#"{{"hold":"{id}","to":"{to_code}","final":{last}{amount_json}}}"#
    ));
    let told = (|| {
        let hold = model.hold(at)?;
        if hold.account == to {
            return Err("capture_to_self");
        }
        model.open_ones(&[hold.account, to])?;
        if ACCOUNTS[hold.account].1 != ACCOUNTS[to].1 {
            return Err("asset_mismatch");
        }
        let rest = hold.amount - hold.captured;
        let amount = amount.unwrap_or(rest);
        if amount > rest {
            return Err("capture_too_large");
        }
        let transfer = next(model);
        model.attempt(&[hold.account, to], |model| {
            model.post(transfer, &[(hold.account, -amount), (to, amount)], false);
            model.holds[at].captured += amount;
            if last || amount == rest {
                model.holds[at].state = HoldState::Captured;
            }
        })
    })();
    (came, told)
}

fn end(model: &mut Naive, batch: &mut Batch<'_>, op: &Op) -> (Came, Told) {
    let id = |at: usize| model.holds.get(at).map_or(Uuid::max(), |hold| hold.id);
    let (came, at) = match op {
        Op::Release { hold } => (batch.run::<Release>(&format!(r#"{{"hold":"{}"}}"#, id(*hold))), *hold),
        Op::Expire { hold } => (batch.apply::<Expire>(&ExpireBody { hold: id(*hold) }, ""), *hold),
        _ => unreachable!(),
    };
    let told = (|| {
        let state = match op {
            Op::Release { .. } => {
                model.hold(at)?;
                HoldState::Released
            }
            _ => {
                let hold = model.holds.get(at).ok_or("hold_unknown")?;
                if hold.state != HoldState::Active {
                    model.hold(at)?;
                }
                if !model.is_past(hold) {
                    return Err("hold_not_due");
                }
                HoldState::Expired
            }
        };
        let account = model.holds[at].account;
        model.attempt(&[account], |model| {
            model.holds[at].state = state;
            model.accounts.get_mut(&account).unwrap().version += 1;
        })
    })();
    (came, told)
}

fn reverse(model: &mut Naive, batch: &mut Batch<'_>, at: usize) -> (Came, Told) {
    let id = model.transfers.get(at).map_or(Uuid::max(), |transfer| transfer.id);
    let came = batch.run::<Reverse>(&format!(r#"{{"transfer":"{id}"}}"#));
    let told = (|| {
        let original = model.transfers.get(at).cloned().ok_or("transfer_unknown")?;
        if original.reversal {
            return Err("transfer_is_reversal");
        }
        if original.reversed {
            return Err("transfer_reversed");
        }
        let legs: Vec<_> = original
            .legs
            .iter()
            .map(|(account, amount)| (*account, -amount))
            .collect();
        let accounts: Vec<_> = legs.iter().map(|(account, _)| *account).collect();
        model.open_ones(&accounts)?;
        let id = next(model);
        model.attempt(&accounts, |model| {
            model.post(id, &legs, true);
            model.transfers[at].reversed = true;
        })
    })();
    (came, told)
}

fn close(model: &mut Naive, batch: &mut Batch<'_>, account: usize) -> (Came, Told) {
    let came = batch.run::<Close>(&format!(r#"{{"account":"{}"}}"#, ACCOUNTS[account].0));
    let told = (|| {
        model.open_ones(&[account])?;
        if model.posted(account) != 0 {
            return Err("account_not_empty");
        }
        if model.live(account) != 0 {
            return Err("account_has_holds");
        }
        model.attempt(&[account], |model| {
            let closed = model.accounts.get_mut(&account).unwrap();
            closed.closed = true;
            closed.version += 1;
        })
    })();
    (came, told)
}

fn compare(model: &Naive, batch: &Batch<'_>) {
    for (account, naive) in &model.accounts {
        let balance = batch.balance(ACCOUNTS[*account].0);
        let ours = (
            balance.posted,
            balance.live(),
            balance.version,
            balance.closed_at.is_some(),
        );
        let theirs = (
            model.posted(*account).into(),
            model.live(*account).into(),
            naive.version,
            naive.closed,
        );
        assert_eq!(ours, theirs, "{} of {model:?}", ACCOUNTS[*account].0);
    }
}

/// Runs the operations; tells how often each code came up.
fn run(ops: &[Op]) -> BTreeMap<&'static str, usize> {
    let mut world = World::new();
    world.run::<NewAsset>(r#"{"code":"USD","scale":2}"#).ok();
    world.run::<NewAsset>(r#"{"code":"BTC","scale":8}"#).ok();
    let mut model = Naive::default();
    let mut seen = BTreeMap::new();
    let mut rest = ops;
    loop {
        model.as_of = model
            .accounts
            .iter()
            .map(|(at, account)| (*at, account.seen.max(model.now)))
            .collect();
        let mut batch = world.batch();
        let mut pause = None;
        while let Some((op, tail)) = rest.split_first() {
            rest = tail;
            let (came, told) = match op {
                Op::Commit { seconds } => {
                    pause = Some(*seconds);
                    break;
                }
                Op::Open { .. } | Op::Limit { .. } => open(&mut model, &mut batch, op),
                Op::Close { account } => close(&mut model, &mut batch, *account),
                Op::Transfer { .. } => transfer(&mut model, &mut batch, op),
                Op::Legs(given) => legs(&mut model, &mut batch, given),
                Op::Hold {
                    account,
                    amount,
                    expires_in,
                } => hold(&mut model, &mut batch, *account, *amount, *expires_in),
                Op::Capture { .. } => capture(&mut model, &mut batch, op),
                Op::Release { .. } | Op::Expire { .. } => end(&mut model, &mut batch, op),
                Op::Reverse { transfer } => reverse(&mut model, &mut batch, *transfer),
            };
            assert_eq!(
                came.code(),
                told.err().unwrap_or("accepted"),
                "{op:?}: {came:?}, {model:?}"
            );
            *seen.entry(came.code()).or_default() += 1;
            compare(&model, &batch);
        }
        batch.save();
        world.check();
        let Some(seconds) = pause else { return seen };
        world.tick(seconds);
        model.now += seconds;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_intents_does_what_the_naive_model_does(ops in ops(120)) {
        run(&ops);
    }

    #[test]
    fn a_reversal_gives_back_every_balance(moves in prop::collection::vec((0..3_usize, 0..3_usize, 1..100_i64), 1..20)) {
        let mut world = World::new();
        world.run::<NewAsset>(r#"{"code":"USD","scale":2}"#).ok();
        for (code, ..) in &ACCOUNTS[..3] {
            world.run::<Open>(&format!(r#"{{"account":"{code}","asset":"USD"}}"#)).ok();
        }
        let mut batch = world.batch();
        let mut made = Vec::new();
        for (from, to, amount) in moves.iter().filter(|(from, to, _)| from != to) {
            let json = format!(r#"{{"from":"{}","to":"{}","amount":"{amount}"}}"#, ACCOUNTS[*from].0, ACCOUNTS[*to].0);
            made.push(batch.run::<Transfer>(&json).id());
        }
        for id in made {
            batch.run::<Reverse>(&format!(r#"{{"transfer":"{id}"}}"#)).ok();
        }
        batch.save();
        world.check();
        for (code, ..) in &ACCOUNTS[..3] {
            prop_assert_eq!(world.balance(code).posted, 0);
        }
    }
}

/// A generator whose operations are all refused proves nothing.
#[test]
fn the_generator_reaches_every_outcome() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..100 {
        for (code, times) in run(&ops(150).new_tree(&mut runner).unwrap().current()) {
            *seen.entry(code).or_default() += times;
        }
    }
    assert!(seen["accepted"] > 1_500, "{seen:?}");
    let rare = [
        "hold_not_due",
        "hold_expired",
        "transfer_reversed",
        "ceiling_crossed",
        "account_has_holds",
    ];
    for code in rare.iter().chain(&[
        "floor_crossed",
        "capture_too_large",
        "version_conflict",
        "limit_violated",
    ]) {
        assert!(seen.contains_key(code), "{code} never came up: {seen:?}");
    }
}
