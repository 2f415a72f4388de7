//! Kind `ledger.expire`: a hold whose time has passed is taken out of its account.
//!
//! Internal, made by the worker that [`crate::read::due_holds`] feeds. It changes no number that
//! anybody is bound by, since a hold stops holding the moment its time passes; it only keeps
//! balances from having to look for expired holds again and again.

use counterfoil_intent::{
    Asks, Books, Context, Fields, Found, Invalid, Key, Kind, Mode, Name, Needs, Outcome, Refs, Refusal, Reply,
};
use jiff::Timestamp;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::codes;
use crate::draft::{At, Drafts};
use crate::hold::HoldState;
use crate::outcome::outcome;
use crate::store::{Balances, HoldAccount, Holds};

#[derive(Debug)]
pub struct Expire;

#[derive(Debug, Clone)]
pub struct ExpireBody {
    pub hold: Uuid,
}

/// The key of one attempt. The pass is in it, so that an attempt that came too early (the clock
/// stepped back) is not replayed by the later ones.
#[must_use]
pub fn key(hold: Uuid, pass: Timestamp) -> Key {
    Key::Internal(format!("ledger.expire:{hold}:{}", pass.as_microsecond()).into())
}

/// A kind that is not public is unknown to callers, so nobody ever asks it to read a body.
pub(crate) fn not_public() -> Invalid {
    Invalid::new("kind_unknown", "kind", "there is no kind of that name")
}

impl Kind for Expire {
    const NAME: &'static str = "ledger.expire";
    const PUBLIC: bool = false;
    type Body = ExpireBody;

    fn parse(_: &RawValue) -> Result<Self::Body, Invalid> {
        Err(not_public())
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        fields.field("hold", body.hold.as_bytes());
    }

    fn refs(body: &Self::Body, asks: &mut Asks) {
        asks.ask::<HoldAccount>(&Name::Id(body.hold));
    }

    fn needs(body: &Self::Body, refs: &Refs, needs: &mut Needs<'_>) {
        if let Found::Stored(id, account) = refs.find::<HoldAccount>(&Name::Id(body.hold)) {
            needs.row::<Holds>(&id, Mode::Change);
            needs.row::<Balances>(account, Mode::Change);
        }
    }

    fn apply(books: &mut Books, body: &Self::Body, refs: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let refuse = |code: &'static str, message: &'static str| Err(Refusal::new(code, "hold", message));
            let known = context.resolve::<HoldAccount>(refs, &Name::Id(body.hold));
            let Some(row) = known.and_then(|id| books.get::<Holds>(&id)) else {
                return refuse(codes::HOLD_UNKNOWN, "there is no such hold");
            };
            match row.state {
                HoldState::Captured => return refuse(codes::HOLD_CAPTURED, "the hold has been captured"),
                HoldState::Released => return refuse(codes::HOLD_RELEASED, "the hold has been released"),
                HoldState::Expired => return refuse(codes::HOLD_EXPIRED, "the hold has expired before"),
                HoldState::Active => {}
            }
            let (expires_at, rest) = (row.expires_at, row.rest());
            let mut drafts = Drafts::with_capacity(1);
            let place = drafts.take(books, row.account, None, At::Hold("hold"))?;
            let time = drafts.time(context.now());
            let draft = drafts.at_mut(place);
            if !draft.before.is_past(expires_at) {
                return refuse(codes::HOLD_NOT_DUE, "the hold still holds");
            }
            draft.after.held -= rest;
            draft.after.expired -= rest;
            draft.after.version += 1;
            drafts.write(books, time);
            let row = books.change::<Holds>(&body.hold).expect("it was read above");
            row.state = HoldState::Expired;
            row.changed_at = time;
            Ok(Reply::new())
        })
    }
}
