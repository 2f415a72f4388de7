//! Holds: a part of an account set aside, until it is captured, released or its time has passed.
//! Kind `ledger.hold`.

use std::borrow::Cow;

use counterfoil_intent::{
    Books, Context, Fields, Invalid, Kind, Kinds, Mode, Name, Needs, Outcome, Refs, Refusal, Reply,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::account::{AccountCode, AccountId};
use crate::amount::{self, Decimal};
use crate::draft::{At, Drafts};
use crate::name;
use crate::outcome::outcome;
use crate::store::{Balances, HoldAccount, Holds};
use crate::{codes, text, time};

/// The longest `expires_in`: ten years, in seconds.
pub const MAX_EXPIRES_IN: i64 = 10 * 366 * 24 * 60 * 60;

/// What has become of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    /// It holds its rest back, unless its time has passed.
    Active,
    /// Taken whole, or a last part of it.
    Captured,
    Released,
    /// Its time passed, and the worker has taken it out of its account.
    Expired,
}

impl HoldState {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Captured => "captured",
            Self::Released => "released",
            Self::Expired => "expired",
        }
    }

    /// Reads what [`Self::as_str`] wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Active, Self::Captured, Self::Released, Self::Expired]
            .into_iter()
            .find(|state| state.as_str() == text)
    }
}

/// The row of a hold.
#[derive(Debug, Clone)]
pub struct HoldRow {
    pub account: AccountId,
    pub amount: i128,
    /// What has been taken so far.
    pub captured: i128,
    pub state: HoldState,
    pub expires_at: Option<Timestamp>,
    pub note: Option<Box<str>>,
    pub recorded_at: Timestamp,
    pub changed_at: Timestamp,
}

impl HoldRow {
    /// What an active hold still holds.
    #[must_use]
    pub fn rest(&self) -> i128 {
        self.amount - self.captured
    }
}

#[derive(Debug)]
pub struct Hold;

#[derive(Debug, Clone)]
pub struct HoldBody {
    pub account: AccountCode,
    pub amount: Decimal,
    pub expiry: Expiry,
    pub note: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expiry {
    Never,
    At(Timestamp),
    /// Seconds after the moment it is recorded.
    In(i64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    account: Cow<'a, str>,
    #[serde(borrow)]
    amount: Cow<'a, str>,
    #[serde(borrow)]
    expires_at: Option<Cow<'a, str>>,
    expires_in: Option<i64>,
    #[serde(borrow)]
    note: Option<Cow<'a, str>>,
}

impl Kind for Hold {
    const NAME: &'static str = "ledger.hold";
    type Body = HoldBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let account = AccountCode::parse(&json.account, "account")?;
        let amount = amount::positive(&json.amount, "amount")?;
        let expiry = match (json.expires_at, json.expires_in) {
            (None, None) => Expiry::Never,
            (Some(at), None) => Expiry::At(time::time(&at, "expires_at")?),
            (None, Some(seconds)) if (1..=MAX_EXPIRES_IN).contains(&seconds) => Expiry::In(seconds),
            (None, Some(_)) => {
                return Err(Invalid::new(codes::EXPIRY_SHAPE, "expires_in", "1 second to ten years"));
            }
            (Some(_), Some(_)) => {
                let message = "say either `expires_at` or `expires_in`, or neither for a hold without an end";
                return Err(Invalid::new(codes::EXPIRY_SHAPE, "expires_in", message));
            }
        };
        let note = text::text(json.note.as_deref(), "note")?;
        Ok(HoldBody {
            account,
            amount,
            expiry,
            note,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        let (at, seconds) = match body.expiry {
            Expiry::Never => (None, None),
            Expiry::At(at) => (Some(time::bytes(at)), None),
            Expiry::In(seconds) => (None, Some(seconds.to_be_bytes())),
        };
        fields.field("account", body.account.as_str().as_bytes());
        fields.field("amount", body.amount.to_string().as_bytes());
        fields.optional("expires_at", at.as_ref().map(<[u8; 8]>::as_slice));
        fields.optional("expires_in", seconds.as_ref().map(<[u8; 8]>::as_slice));
        fields.optional("note", body.note.as_deref().map(str::as_bytes));
    }

    fn needs(body: &Self::Body, _: &Refs, needs: &mut Needs<'_>) {
        needs.row::<Balances>(&body.account.id(), Mode::Change);
    }

    fn apply(books: &mut Books, body: &Self::Body, _: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let mut drafts = Drafts::with_capacity(1);
            let place = drafts.take(books, body.account.id(), Some(&body.account), At::Account)?;
            drafts.refuse_closed()?;
            let time = drafts.time(context.now());
            let draft = drafts.at_mut(place);
            let (asset, scale) = (draft.before.asset, draft.before.scale);
            let amount = amount::minor(body.amount, scale, asset, || "amount".into())?;
            let expires_at = match body.expiry {
                Expiry::Never => None,
                Expiry::At(at) => Some(at),
                // Past the end of time is never.
                Expiry::In(seconds) => time.checked_add(SignedDuration::from_secs(seconds)).ok(),
            };
            if expires_at.is_some_and(|expires_at| expires_at <= time) {
                let message = format!("the hold would expire at or before {time}, when it is recorded");
                return Err(Refusal::new(codes::EXPIRY_PASSED, "expires_at", message));
            }
            let held = draft
                .before
                .held
                .checked_add(amount)
                .filter(|held| *held <= amount::MAX);
            let Some(held) = held else {
                let message = format!("the holds on {} would have more than 38 digits", draft.name());
                return Err(Refusal::new(codes::BALANCE_OVERFLOW, "amount", message));
            };
            draft.after.held = held;
            draft.after.version += 1;
            draft.after.expect_expiry(expires_at);
            drafts.check_limits()?;
            let hold = context.new_id();
            drafts.write(books, time);
            books.create::<Holds>(
                hold,
                HoldRow {
                    account: body.account.id(),
                    amount,
                    captured: 0,
                    state: HoldState::Active,
                    expires_at,
                    note: body.note.clone(),
                    recorded_at: time,
                    changed_at: time,
                },
            );
            let reply = Reply::new().id("hold", hold);
            Ok(match expires_at {
                None => reply,
                Some(expires_at) => reply.text("expires_at", &expires_at.to_string()),
            })
        })
    }
}

/// The rows of a hold that is named: itself, and the balance it is on.
pub(crate) fn needs(hold: &Name, refs: &Refs, needs: &mut Needs<'_>) {
    // Where an earlier intent of the batch makes it, both are among the needs of that one.
    if let counterfoil_intent::Found::Stored(id, account) = refs.find::<HoldAccount>(hold) {
        needs.row::<Holds>(&id, Mode::Change);
        needs.row::<Balances>(account, Mode::Change);
    }
}

/// A hold that is named, if it still holds anything.
pub(crate) fn live(books: &Books, refs: &Refs, context: &Context, name: &Name) -> Result<(Uuid, HoldRow), Refusal> {
    let field = name::HOLD.field(name);
    let refuse = |code: &'static str, message: &'static str| Err(Refusal::new(code, field, message));
    let Some(id) = context.resolve::<HoldAccount>(refs, name) else {
        return refuse(codes::HOLD_UNKNOWN, "there is no such hold");
    };
    let Some(row) = books.get::<Holds>(&id) else {
        return refuse(codes::HOLD_UNKNOWN, "there is no such hold");
    };
    match row.state {
        HoldState::Captured => return refuse(codes::HOLD_CAPTURED, "the hold has been captured"),
        HoldState::Released => return refuse(codes::HOLD_RELEASED, "the hold has been released"),
        HoldState::Expired => return refuse(codes::HOLD_EXPIRED, "the hold has expired"),
        HoldState::Active => {}
    }
    let balance = books.get::<Balances>(&row.account).expect("a hold is on an account");
    if balance.is_past(row.expires_at) {
        return refuse(codes::HOLD_EXPIRED, "the hold has expired");
    }
    Ok((id, row.clone()))
}
