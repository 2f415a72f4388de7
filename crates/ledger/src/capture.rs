//! Kind `ledger.capture`: what was held goes to another account.

use std::borrow::Cow;

use counterfoil_intent::{
    Asks, Books, Context, Fields, Invalid, Kind, Kinds, Mode, Name, Needs, Outcome, Refs, Refusal, Reply,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::AccountCode;
use crate::amount::{self, Decimal, render};
use crate::draft::{At, Drafts};
use crate::hold::{self, HoldState};
use crate::name;
use crate::outcome::outcome;
use crate::posting::{About, Leg, post};
use crate::store::{Balances, HoldAccount, Holds};
use crate::transfer::{about_fields, one_asset};
use crate::{codes, text, time};

#[derive(Debug)]
pub struct Capture;

#[derive(Debug, Clone)]
pub struct CaptureBody {
    pub hold: Name,
    pub to: AccountCode,
    /// Absent: all that is left.
    pub amount: Option<Decimal>,
    /// Whether what is then left goes back.
    pub last: bool,
    pub effective_at: Option<Timestamp>,
    pub description: Option<Box<str>>,
    pub metadata: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    hold: Option<Cow<'a, str>>,
    #[serde(borrow)]
    hold_key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    to: Cow<'a, str>,
    #[serde(borrow)]
    amount: Option<Cow<'a, str>>,
    #[serde(rename = "final", default)]
    last: bool,
    #[serde(borrow)]
    effective_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl Kind for Capture {
    const NAME: &'static str = "ledger.capture";
    type Body = CaptureBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let hold = name::HOLD.parse(json.hold.as_deref(), json.hold_key.as_deref())?;
        let to = AccountCode::parse(&json.to, "to")?;
        let amount = json
            .amount
            .map(|amount| amount::positive(&amount, "amount"))
            .transpose()?;
        let effective_at = json
            .effective_at
            .map(|at| time::time(&at, "effective_at"))
            .transpose()?;
        let description = text::text(json.description.as_deref(), "description")?;
        let metadata = text::metadata(json.metadata, "metadata")?;
        Ok(CaptureBody {
            hold,
            to,
            amount,
            last: json.last,
            effective_at,
            description,
            metadata,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        name::HOLD.fields(&body.hold, fields);
        fields.field("to", body.to.as_str().as_bytes());
        let amount = body.amount.map(|amount| amount.to_string());
        fields.optional("amount", amount.as_deref().map(str::as_bytes));
        // Without an amount nothing is left to go back, whether it was said or not.
        fields.field("final", &[u8::from(body.last && body.amount.is_some())]);
        about_fields(
            body.effective_at,
            body.description.as_deref(),
            body.metadata.as_deref(),
            fields,
        );
    }

    fn refs(body: &Self::Body, asks: &mut Asks) {
        asks.ask::<HoldAccount>(&body.hold);
    }

    fn needs(body: &Self::Body, refs: &Refs, needs: &mut Needs<'_>) {
        hold::needs(&body.hold, refs, needs);
        needs.row::<Balances>(&body.to.id(), Mode::Change);
    }

    fn apply(books: &mut Books, body: &Self::Body, refs: &Refs, context: &mut Context) -> Outcome {
        outcome(|| capture(books, body, refs, context))
    }
}

fn capture(books: &mut Books, body: &CaptureBody, refs: &Refs, context: &mut Context) -> Result<Reply, Refusal> {
    let (id, mut row) = hold::live(books, refs, context, &body.hold)?;
    if row.account == body.to.id() {
        let message = "the hold is on that account itself; release it instead";
        return Err(Refusal::new(codes::CAPTURE_TO_SELF, "to", message));
    }
    let mut drafts = Drafts::with_capacity(2);
    let from = drafts.take(books, row.account, None, At::Hold(name::HOLD.field(&body.hold)))?;
    let to = drafts.take(books, body.to.id(), Some(&body.to), At::To)?;
    drafts.refuse_closed()?;
    one_asset(&drafts, from, to)?;
    let draft = drafts.at_mut(from);
    let (asset, scale) = (draft.before.asset, draft.before.scale);
    let amount = match body.amount {
        None => row.rest(),
        Some(amount) => amount::minor(amount, scale, asset, || "amount".into())?,
    };
    if amount > row.rest() {
        let rest = render(row.rest(), scale);
        let message = format!("the hold has {rest} {asset} left");
        return Err(Refusal::new(codes::CAPTURE_TOO_LARGE, "amount", message));
    }
    let ends = body.last || amount == row.rest();
    let freed = if ends { row.rest() } else { amount };
    draft.after.held -= freed;
    row.captured += amount;
    if ends {
        row.state = HoldState::Captured;
    }
    let legs = [
        Leg {
            place: from,
            amount: -amount,
            at: At::Hold("amount"),
        },
        Leg {
            place: to,
            amount,
            at: At::To,
        },
    ];
    let about = About {
        description: body.description.clone(),
        metadata: body.metadata.clone(),
        captures: Some(id),
        ..About::default()
    };
    row.changed_at = drafts.time(context.now());
    let left = if ends { 0 } else { row.rest() };
    let transfer = post(books, context, drafts, &legs, body.effective_at, about)?;
    *books.change::<Holds>(&id).expect("it was read above") = row;
    // Not called `hold`: that field of a result names what the intent made.
    Ok(Reply::new()
        .id("transfer", transfer)
        .text("captured", &render(amount, scale))
        .text("left", &render(left, scale)))
}
