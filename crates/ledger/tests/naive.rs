//! The naive model that `model` holds the kinds against: whole histories kept, everything counted from
//! the beginning each time. And the operations that are thrown at both.

use std::collections::BTreeMap;

use counterfoil_ledger::HoldState;
use proptest::prelude::*;
use uuid::Uuid;

pub const ACCOUNTS: [(&str, &str, u8); 5] = [
    ("cash", "USD", 2),
    ("bank", "USD", 2),
    ("till", "USD", 2),
    ("cold", "BTC", 8),
    ("warm", "BTC", 8),
];

#[derive(Debug, Clone)]
pub enum Op {
    Open {
        account: usize,
        floor: Option<i64>,
        ceiling: Option<i64>,
    },
    Limit {
        account: usize,
        floor: Option<i64>,
        ceiling: Option<i64>,
    },
    Close {
        account: usize,
    },
    Transfer {
        from: usize,
        to: usize,
        amount: i64,
        expect: Option<i64>,
    },
    Legs(Vec<(usize, i64)>),
    Hold {
        account: usize,
        amount: i64,
        expires_in: Option<i64>,
    },
    Capture {
        hold: usize,
        to: usize,
        amount: Option<i64>,
        last: bool,
    },
    Release {
        hold: usize,
    },
    Reverse {
        transfer: usize,
    },
    Expire {
        hold: usize,
    },
    /// The batch ends, and this many seconds later the next begins. The clock may step back.
    Commit {
        seconds: i64,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let account = || 0..ACCOUNTS.len();
    // Mostly with room on the right side of zero, sometimes not.
    let floor = || prop::option::weighted(0.5, -400..20_i64);
    let ceiling = || prop::option::weighted(0.3, -20..400_i64);
    prop_oneof![
        3 => (account(), floor(), ceiling()).prop_map(|(account, floor, ceiling)| Op::Open { account, floor, ceiling }),
        6 => (account(), floor(), ceiling()).prop_map(|(account, floor, ceiling)| Op::Limit { account, floor, ceiling }),
        1 => account().prop_map(|account| Op::Close { account }),
        30 => (account(), account(), 1..250_i64, prop::option::weighted(0.1, 1..9_i64))
            .prop_map(|(from, to, amount, expect)| Op::Transfer { from, to, amount, expect }),
        12 => prop::collection::vec((account(), -150..150_i64), 1..5).prop_map(Op::Legs),
        20 => (account(), 1..100_i64, prop::option::weighted(0.6, 1..30_i64))
            .prop_map(|(account, amount, expires_in)| Op::Hold { account, amount, expires_in }),
        24 => (0..12_usize, account(), prop::option::weighted(0.7, 1..100_i64), any::<bool>())
            .prop_map(|(hold, to, amount, last)| Op::Capture { hold, to, amount, last }),
        6 => (0..12_usize).prop_map(|hold| Op::Release { hold }),
        12 => (0..30_usize).prop_map(|transfer| Op::Reverse { transfer }),
        12 => (0..12_usize).prop_map(|hold| Op::Expire { hold }),
        18 => (-3..12_i64).prop_map(|seconds| Op::Commit { seconds }),
    ]
}

/// Operations on accounts of which most have been opened.
pub fn ops(most: usize) -> impl Strategy<Value = Vec<Op>> {
    let opened = prop::collection::vec(
        (0..ACCOUNTS.len(), prop::option::weighted(0.5, -400..1_i64)).prop_map(|(account, floor)| Op::Open {
            account,
            floor,
            ceiling: None,
        }),
        0..10,
    );
    (opened, prop::collection::vec(op(), 1..most)).prop_map(|(mut opened, ops)| {
        opened.extend(ops);
        opened
    })
}

#[derive(Debug, Clone)]
pub struct NaiveAccount {
    pub floor: Option<i64>,
    pub ceiling: Option<i64>,
    pub closed: bool,
    pub version: i64,
    /// The latest second at which something was seen to happen.
    pub seen: i64,
}

#[derive(Debug, Clone)]
pub struct NaiveHold {
    pub id: Uuid,
    pub account: usize,
    pub amount: i64,
    pub captured: i64,
    pub state: HoldState,
    pub expires: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct NaiveTransfer {
    pub id: Uuid,
    pub legs: Vec<(usize, i64)>,
    pub reversed: bool,
    pub reversal: bool,
}

#[derive(Debug, Clone, Default)]
pub struct Naive {
    pub now: i64,
    pub accounts: BTreeMap<usize, NaiveAccount>,
    pub holds: Vec<NaiveHold>,
    pub transfers: Vec<NaiveTransfer>,
    /// When each account was loaded into the present batch.
    pub as_of: BTreeMap<usize, i64>,
}

pub type Told = Result<(), &'static str>;

impl Naive {
    pub fn posted(&self, account: usize) -> i64 {
        let legs = self.transfers.iter().flat_map(|transfer| &transfer.legs);
        legs.filter(|(leg, _)| *leg == account).map(|(_, amount)| amount).sum()
    }

    pub fn time(&self, account: usize) -> i64 {
        self.as_of.get(&account).copied().unwrap_or(self.now)
    }

    pub fn is_past(&self, hold: &NaiveHold) -> bool {
        hold.expires.is_some_and(|expires| expires <= self.time(hold.account))
    }

    pub fn live(&self, account: usize) -> i64 {
        let active = self
            .holds
            .iter()
            .filter(|hold| hold.account == account && hold.state == HoldState::Active);
        active
            .filter(|hold| !self.is_past(hold))
            .map(|hold| hold.amount - hold.captured)
            .sum()
    }

    pub fn available(&self, account: usize) -> i64 {
        self.posted(account) - self.live(account)
    }

    pub fn open_ones(&self, accounts: &[usize]) -> Told {
        if accounts.iter().any(|account| !self.accounts.contains_key(account)) {
            return Err("account_unknown");
        }
        if accounts.iter().any(|account| self.accounts[account].closed) {
            return Err("account_closed");
        }
        Ok(())
    }

    /// Tries it out on a copy, and keeps the copy if no limit is crossed that was not.
    pub fn attempt(&mut self, accounts: &[usize], change: impl FnOnce(&mut Self)) -> Told {
        let mut next = self.clone();
        change(&mut next);
        for account in accounts {
            let floor = self.accounts[account].floor;
            let (before, after) = (self.available(*account), next.available(*account));
            if floor.is_some_and(|floor| after < floor) && after < before {
                return Err("floor_crossed");
            }
        }
        for account in accounts {
            let ceiling = self.accounts[account].ceiling;
            let (before, after) = (self.posted(*account), next.posted(*account));
            if ceiling.is_some_and(|ceiling| after > ceiling) && after > before {
                return Err("ceiling_crossed");
            }
        }
        let latest = accounts
            .iter()
            .map(|account| self.accounts[account].seen.max(self.time(*account)))
            .max();
        for account in accounts {
            let seen = &mut next.accounts.get_mut(account).unwrap().seen;
            *seen = (*seen).max(latest.unwrap()).max(self.now);
        }
        *self = next;
        Ok(())
    }

    pub fn post(&mut self, id: Uuid, legs: &[(usize, i64)], reversal: bool) {
        for (account, _) in legs {
            self.accounts.get_mut(account).unwrap().version += 1;
        }
        self.transfers.push(NaiveTransfer {
            id,
            legs: legs.to_vec(),
            reversed: false,
            reversal,
        });
    }

    pub fn hold(&self, at: usize) -> Result<NaiveHold, &'static str> {
        let hold = self.holds.get(at).cloned().ok_or("hold_unknown")?;
        match hold.state {
            HoldState::Captured => Err("hold_captured"),
            HoldState::Released => Err("hold_released"),
            HoldState::Expired => Err("hold_expired"),
            HoldState::Active if self.is_past(&hold) => Err("hold_expired"),
            HoldState::Active => Ok(hold),
        }
    }
}
