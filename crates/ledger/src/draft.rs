//! What one intent does to balances: worked out on copies, checked as a whole, then written.

use std::borrow::Cow;

use counterfoil_intent::{Books, Refusal};
use jiff::Timestamp;

use crate::account::{AccountCode, AccountId, Balance};
use crate::amount::{self, render};
use crate::codes;
use crate::store::Balances;

/// Where an account stands in a body, for the field of a refusal.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At {
    Account,
    From,
    To,
    Leg(usize),
    /// The account of a hold.
    Hold(&'static str),
    /// An account of a transfer that is to be reversed.
    Transfer(&'static str),
}

impl At {
    pub(crate) fn account(self) -> Cow<'static, str> {
        match self {
            Self::Account => "account".into(),
            Self::From => "from".into(),
            Self::To => "to".into(),
            Self::Leg(i) => format!("legs[{i}].account").into(),
            Self::Hold(field) | Self::Transfer(field) => field.into(),
        }
    }

    pub(crate) fn amount(self) -> Cow<'static, str> {
        match self {
            Self::Account | Self::From | Self::To | Self::Hold(_) => "amount".into(),
            Self::Leg(i) => format!("legs[{i}].amount").into(),
            Self::Transfer(field) => field.into(),
        }
    }

    fn name(self, code: Option<&AccountCode>) -> String {
        match (self, code) {
            (_, Some(code)) => format!("the account {code}"),
            (Self::Hold(_), None) => "the account of the hold".to_owned(),
            (_, None) => "an account of the transfer".to_owned(),
        }
    }
}

/// The copy of one balance.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) id: AccountId,
    pub(crate) before: Balance,
    pub(crate) after: Balance,
    /// Where the account stands first, and what it is called.
    at: At,
    code: Option<&'a AccountCode>,
}

impl Draft<'_> {
    pub(crate) fn name(&self) -> String {
        self.at.name(self.code)
    }

    fn money(&self, minor: i128) -> String {
        format!("{} {}", render(minor, self.before.scale), self.before.asset)
    }

    /// Adds to what is posted: one entry. Tells the version of it and the balance after it.
    pub(crate) fn post(&mut self, amount: i128, at: At) -> Result<(i64, i128), Refusal> {
        let sum = self
            .after
            .posted
            .checked_add(amount)
            .filter(|sum| sum.unsigned_abs() <= amount::MAX.unsigned_abs());
        let Some(posted) = sum else {
            let message = format!("the balance of {} would have more than 38 digits", self.name());
            return Err(Refusal::new(codes::BALANCE_OVERFLOW, at.amount(), message));
        };
        self.after.posted = posted;
        self.after.version += 1;
        Ok((self.after.version, posted))
    }
}

/// The balances that one intent touches.
#[derive(Debug)]
pub(crate) struct Drafts<'a> {
    drafts: Vec<Draft<'a>>,
}

impl<'a> Drafts<'a> {
    pub(crate) fn with_capacity(accounts: usize) -> Self {
        Self {
            drafts: Vec::with_capacity(accounts),
        }
    }

    /// The place of an account's copy, which is taken when the account first comes up.
    pub(crate) fn take(
        &mut self,
        books: &Books,
        id: AccountId,
        code: Option<&'a AccountCode>,
        at: At,
    ) -> Result<usize, Refusal> {
        if let Some(place) = self.place(id) {
            return Ok(place);
        }
        let Some(balance) = books.get::<Balances>(&id) else {
            return Err(Refusal::new(
                codes::ACCOUNT_UNKNOWN,
                at.account(),
                format!("{} has not been opened", at.name(code)),
            ));
        };
        self.drafts.push(Draft {
            id,
            before: *balance,
            after: *balance,
            at,
            code,
        });
        Ok(self.drafts.len() - 1)
    }

    pub(crate) fn place(&self, id: AccountId) -> Option<usize> {
        self.drafts.iter().position(|draft| draft.id == id)
    }

    pub(crate) fn at(&self, place: usize) -> &Draft<'a> {
        &self.drafts[place]
    }

    pub(crate) fn at_mut(&mut self, place: usize) -> &mut Draft<'a> {
        &mut self.drafts[place]
    }

    pub(crate) fn refuse_closed(&self) -> Result<(), Refusal> {
        let Some(draft) = self.drafts.iter().find(|draft| draft.before.closed_at.is_some()) else {
            return Ok(());
        };
        Err(Refusal::new(
            codes::ACCOUNT_CLOSED,
            draft.at.account(),
            format!("{} is closed", draft.name()),
        ))
    }

    /// The limits, for the intent as a whole: what is under its floor or over its ceiling may move
    /// towards the allowed range, and never further away.
    pub(crate) fn check_limits(&self) -> Result<(), Refusal> {
        for draft in &self.drafts {
            let (before, after) = (&draft.before, &draft.after);
            if after.is_under_floor() && after.available() < before.available() {
                let floor = after.floor.unwrap_or_default();
                let message = format!(
                    "{} has {} available; this would leave {}, and its floor is {}",
                    draft.name(),
                    draft.money(before.available()),
                    draft.money(after.available()),
                    draft.money(floor),
                );
                return Err(Refusal::new(codes::FLOOR_CROSSED, draft.at.account(), message));
            }
        }
        for draft in &self.drafts {
            let (before, after) = (&draft.before, &draft.after);
            if after.is_over_ceiling() && after.posted > before.posted {
                let ceiling = after.ceiling.unwrap_or_default();
                let message = format!(
                    "{} has {} posted; this would make it {}, and its ceiling is {}",
                    draft.name(),
                    draft.money(before.posted),
                    draft.money(after.posted),
                    draft.money(ceiling),
                );
                return Err(Refusal::new(codes::CEILING_CROSSED, draft.at.account(), message));
            }
        }
        Ok(())
    }

    /// The time of what happens: the clock, but never before what happened to one of the accounts.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        self.drafts
            .iter()
            .fold(now, |time, draft| time.max(draft.before.changed_at))
    }

    /// Writes the copies back.
    pub(crate) fn write(self, books: &mut Books, time: Timestamp) {
        for draft in self.drafts {
            if draft.after != draft.before {
                let row = books.change::<Balances>(&draft.id).expect("a copy was taken of it");
                *row = Balance {
                    changed_at: time,
                    ..draft.after
                };
            }
        }
    }
}
