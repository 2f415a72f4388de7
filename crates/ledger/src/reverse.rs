//! Kind `ledger.reverse`: a transfer is taken back, once, by another transfer.

use std::borrow::Cow;

use counterfoil_intent::{
    Asks, Books, Context, Fields, Found, Invalid, Kind, Kinds, Mode, Name, Needs, Outcome, Refs, Refusal, Reply,
};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::draft::{At, Drafts};
use crate::name;
use crate::outcome::outcome;
use crate::posting::{About, Leg, post};
use crate::store::{Balances, TransferAccounts, Transfers};
use crate::transfer::about_fields;
use crate::{codes, text, time};

#[derive(Debug)]
pub struct Reverse;

#[derive(Debug, Clone)]
pub struct ReverseBody {
    pub transfer: Name,
    pub effective_at: Option<Timestamp>,
    pub description: Option<Box<str>>,
    pub metadata: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    transfer: Option<Cow<'a, str>>,
    #[serde(borrow)]
    transfer_key: Option<Cow<'a, str>>,
    #[serde(borrow)]
    effective_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

impl Kind for Reverse {
    const NAME: &'static str = "ledger.reverse";
    type Body = ReverseBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let transfer = name::TRANSFER.parse(json.transfer.as_deref(), json.transfer_key.as_deref())?;
        let effective_at = json
            .effective_at
            .map(|at| time::time(&at, "effective_at"))
            .transpose()?;
        let description = text::text(json.description.as_deref(), "description")?;
        let metadata = text::metadata(json.metadata, "metadata")?;
        Ok(ReverseBody {
            transfer,
            effective_at,
            description,
            metadata,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        name::TRANSFER.fields(&body.transfer, fields);
        about_fields(
            body.effective_at,
            body.description.as_deref(),
            body.metadata.as_deref(),
            fields,
        );
    }

    fn refs(body: &Self::Body, asks: &mut Asks) {
        asks.ask::<TransferAccounts>(&body.transfer);
    }

    fn needs(body: &Self::Body, refs: &Refs, needs: &mut Needs<'_>) {
        // Where an earlier intent of the batch makes it, its accounts are among the needs of that
        // one.
        if let Found::Stored(id, accounts) = refs.find::<TransferAccounts>(&body.transfer) {
            needs.row::<Transfers>(&id, Mode::Change);
            for account in accounts {
                needs.row::<Balances>(account, Mode::Change);
            }
        }
    }

    fn apply(books: &mut Books, body: &Self::Body, refs: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let field = name::TRANSFER.field(&body.transfer);
            let known = context.resolve::<TransferAccounts>(refs, &body.transfer);
            let found = known.and_then(|id| Some((id, books.get::<Transfers>(&id)?)));
            let Some((id, row)) = found else {
                return Err(Refusal::new(
                    codes::TRANSFER_UNKNOWN,
                    field,
                    "there is no such transfer",
                ));
            };
            if row.about.reverses.is_some() {
                let message = "the transfer is a reversal itself; send the transfer that is wanted instead";
                return Err(Refusal::new(codes::TRANSFER_IS_REVERSAL, field, message));
            }
            if let Some(by) = row.reversed_by {
                let message = format!("the transfer has been reversed before, by {by}");
                return Err(Refusal::new(codes::TRANSFER_REVERSED, field, message));
            }
            let at = At::Transfer(field);
            let mut drafts = Drafts::with_capacity(row.lines.len());
            let mut legs = Vec::with_capacity(row.lines.len());
            for line in &row.lines {
                let place = drafts.take(books, line.account, None, at)?;
                legs.push(Leg {
                    place,
                    amount: -line.amount,
                    at,
                });
            }
            drafts.refuse_closed()?;
            let about = About {
                description: body.description.clone(),
                metadata: body.metadata.clone(),
                reverses: Some(id),
                ..About::default()
            };
            let transfer = post(books, context, drafts, &legs, body.effective_at, about)?;
            books.change::<Transfers>(&id).expect("it was read above").reversed_by = Some(transfer);
            Ok(Reply::new().id("transfer", transfer))
        })
    }
}
