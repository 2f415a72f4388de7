//! A transfer is written: entries, balances, the row of the transfer itself.

use counterfoil_intent::{Books, Context, Refusal};
use jiff::Timestamp;
use uuid::Uuid;

use crate::account::AccountId;
use crate::draft::{At, Drafts};
use crate::store::{Entries, Transfers};

/// One leg of a transfer that is about to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leg {
    /// Of the account's copy.
    pub(crate) place: usize,
    pub(crate) amount: i128,
    pub(crate) at: At,
}

/// One leg of a transfer that has been written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub account: AccountId,
    /// The version of the account that its entry is.
    pub version: i64,
    pub amount: i128,
}

/// The row of a transfer. Only `reversed_by` ever changes, and once.
#[derive(Debug, Clone)]
pub struct TransferRow {
    pub lines: Box<[Line]>,
    pub about: About,
    pub recorded_at: Timestamp,
    pub effective_at: Timestamp,
    pub reversed_by: Option<Uuid>,
}

/// What a transfer says of itself.
#[derive(Debug, Clone, Default)]
pub struct About {
    pub description: Option<Box<str>>,
    /// A JSON object in its normal form.
    pub metadata: Option<Box<str>>,
    /// The transfer it takes back.
    pub reverses: Option<Uuid>,
    /// The hold it takes from.
    pub captures: Option<Uuid>,
}

/// An entry: append only.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    pub account: AccountId,
    pub version: i64,
    pub transfer: Uuid,
    pub amount: i128,
    /// The balance after it.
    pub posted: i128,
    pub recorded_at: Timestamp,
    pub effective_at: Timestamp,
}

/// Posts the legs in their order, checks the accounts as a whole, and writes all of it.
///
/// The caller has seen to it that the legs sum to zero per asset.
pub(crate) fn post(
    books: &mut Books,
    context: &mut Context,
    mut drafts: Drafts<'_>,
    legs: &[Leg],
    effective_at: Option<Timestamp>,
    about: About,
) -> Result<Uuid, Refusal> {
    let mut lines = Vec::with_capacity(legs.len());
    let mut balances = Vec::with_capacity(legs.len());
    for leg in legs {
        let draft = drafts.at_mut(leg.place);
        let (version, posted) = draft.post(leg.amount, leg.at)?;
        lines.push(Line {
            account: draft.id,
            version,
            amount: leg.amount,
        });
        balances.push(posted);
    }
    drafts.check_limits()?;
    let recorded_at = drafts.time(context.now());
    let effective_at = effective_at.unwrap_or(recorded_at);
    let transfer = context.new_id();
    drafts.write(books, recorded_at);
    for (line, posted) in lines.iter().zip(balances) {
        let Line {
            account,
            version,
            amount,
        } = *line;
        books.append::<Entries>(Entry {
            account,
            version,
            transfer,
            amount,
            posted,
            recorded_at,
            effective_at,
        });
    }
    let row = TransferRow {
        lines: lines.into(),
        about,
        recorded_at,
        effective_at,
        reversed_by: None,
    };
    books.create::<Transfers>(transfer, row);
    Ok(transfer)
}
