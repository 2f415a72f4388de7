//! Kind `ledger.transfer`: amounts go from account to account.

use std::borrow::Cow;

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Kinds, Mode, Needs, Outcome, Refs, Refusal, Reply};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::AccountCode;
use crate::amount::{self, Decimal, Sum, render};
use crate::asset::AssetCode;
use crate::draft::{At, Drafts};
use crate::outcome::outcome;
use crate::posting::{About, Leg, post};
use crate::store::Balances;
use crate::{codes, text, time};

/// The fewest and the most legs of a transfer.
pub const LEGS: std::ops::RangeInclusive<usize> = 2..=100;

#[derive(Debug)]
pub struct Transfer;

#[derive(Debug, Clone)]
pub struct TransferBody {
    pub(crate) form: Form,
    pub(crate) legs: Vec<BodyLeg>,
    pub(crate) expect: Vec<Expected>,
    pub(crate) effective_at: Option<Timestamp>,
    pub(crate) description: Option<Box<str>>,
    pub(crate) metadata: Option<Box<str>>,
}

/// How the legs were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `from`, `to`, `amount`: one asset.
    Short,
    Legs,
}

#[derive(Debug, Clone)]
pub(crate) struct BodyLeg {
    pub(crate) account: AccountCode,
    pub(crate) amount: Decimal,
}

/// The version that an account must still have.
#[derive(Debug, Clone)]
pub(crate) struct Expected {
    account: AccountCode,
    version: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    from: Option<Cow<'a, str>>,
    #[serde(borrow)]
    to: Option<Cow<'a, str>>,
    #[serde(borrow)]
    amount: Option<Cow<'a, str>>,
    #[serde(borrow)]
    legs: Option<Vec<JsonLeg<'a>>>,
    #[serde(borrow)]
    expect: Option<Vec<JsonExpected<'a>>>,
    #[serde(borrow)]
    effective_at: Option<Cow<'a, str>>,
    #[serde(borrow)]
    description: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonLeg<'a> {
    #[serde(borrow)]
    account: Cow<'a, str>,
    #[serde(borrow)]
    amount: Cow<'a, str>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonExpected<'a> {
    #[serde(borrow)]
    account: Cow<'a, str>,
    version: i64,
}

fn legs(json: &Json<'_>) -> Result<(Form, Vec<BodyLeg>), Invalid> {
    match (&json.from, &json.to, &json.amount, &json.legs) {
        (Some(from), Some(to), Some(amount), None) => {
            let from = AccountCode::parse(from, "from")?;
            let to = AccountCode::parse(to, "to")?;
            let amount = amount::positive(amount, "amount")?;
            let legs = vec![
                BodyLeg {
                    account: from,
                    amount: amount.negated(),
                },
                BodyLeg { account: to, amount },
            ];
            Ok((Form::Short, legs))
        }
        (None, None, None, Some(legs)) => {
            count(legs.len(), "legs")?;
            let mut out = Vec::with_capacity(legs.len());
            for (i, leg) in legs.iter().enumerate() {
                let account = AccountCode::parse(&leg.account, &format!("legs[{i}].account"))?;
                let amount = amount::non_zero(&leg.amount, &format!("legs[{i}].amount"))?;
                out.push(BodyLeg { account, amount });
            }
            Ok((Form::Legs, out))
        }
        _ => {
            let members = [("from", &json.from), ("to", &json.to), ("amount", &json.amount)];
            // Of the short form the one that is missing; of both forms at once nobody can say.
            let missing = members.iter().find(|(_, member)| member.is_none());
            let short = json.legs.is_none() && members.iter().any(|(_, member)| member.is_some());
            Err(Invalid::new(
                codes::TRANSFER_SHAPE,
                missing.filter(|_| short).map_or("", |(name, _)| *name),
                "a transfer is either `from`, `to` and `amount`, or `legs` of an account and an amount each",
            ))
        }
    }
}

/// The checks that legs pass wherever they come from.
pub(crate) fn count(legs: usize, field: &str) -> Result<(), Invalid> {
    if LEGS.contains(&legs) {
        return Ok(());
    }
    Err(Invalid::new(
        codes::LEGS_COUNT,
        field,
        format!("{legs} legs; a transfer has 2 to 100"),
    ))
}

pub(crate) fn balanced(legs: &[BodyLeg], field: &str) -> Result<(), Invalid> {
    if legs.iter().all(|leg| leg.account == legs[0].account) {
        return Err(Invalid::new(
            codes::SAME_ACCOUNT,
            field,
            "a transfer touches at least two accounts",
        ));
    }
    if !Decimal::sum_to_zero(legs.iter().map(|leg| leg.amount)) {
        return Err(Invalid::new(
            codes::LEGS_UNBALANCED,
            field,
            "the amounts of the legs do not sum to zero, so those of some asset do not",
        ));
    }
    Ok(())
}

fn expected(json: Option<&[JsonExpected<'_>]>, legs: &[BodyLeg]) -> Result<Vec<Expected>, Invalid> {
    let mut out: Vec<Expected> = Vec::new();
    for (i, given) in json.unwrap_or_default().iter().enumerate() {
        let invalid = |field: &str, why: &'static str| {
            Err(Invalid::new(codes::EXPECT_INVALID, format!("expect[{i}].{field}"), why))
        };
        let known = |code: &AccountCode| code.as_str() == given.account;
        let Some(leg) = legs.iter().find(|leg| known(&leg.account)) else {
            return invalid("account", "no leg of the transfer is on this account");
        };
        if out.iter().any(|expected| known(&expected.account)) {
            return invalid("account", "the account is here twice");
        }
        if given.version < 1 {
            return invalid("version", "the first version of an account is 1");
        }
        out.push(Expected {
            account: leg.account.clone(),
            version: given.version,
        });
    }
    Ok(out)
}

impl Kind for Transfer {
    const NAME: &'static str = "ledger.transfer";
    type Body = TransferBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let (form, legs) = legs(&json)?;
        balanced(&legs, if form == Form::Short { "to" } else { "legs" })?;
        let expect = expected(json.expect.as_deref(), &legs)?;
        let effective_at = json
            .effective_at
            .map(|at| time::time(&at, "effective_at"))
            .transpose()?;
        let description = text::text(json.description.as_deref(), "description")?;
        let metadata = text::metadata(json.metadata, "metadata")?;
        Ok(TransferBody {
            form,
            legs,
            expect,
            effective_at,
            description,
            metadata,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        let (from, to, amount, legs) = match (body.form, body.legs.as_slice()) {
            (Form::Short, [from, to]) => (
                Some(from.account.as_str()),
                Some(to.account.as_str()),
                Some(to.amount.to_string()),
                None,
            ),
            (_, legs) => (None, None, None, Some(leg_bytes(legs))),
        };
        fields.optional("from", from.map(str::as_bytes));
        fields.optional("to", to.map(str::as_bytes));
        fields.optional("amount", amount.as_deref().map(str::as_bytes));
        fields.optional("legs", legs.as_deref());
        let mut expect = Vec::new();
        for expected in &body.expect {
            push(&mut expect, expected.account.as_str().as_bytes());
            push(&mut expect, &expected.version.to_be_bytes());
        }
        fields.optional("expect", (!expect.is_empty()).then_some(expect.as_slice()));
        about_fields(
            body.effective_at,
            body.description.as_deref(),
            body.metadata.as_deref(),
            fields,
        );
    }

    fn needs(body: &Self::Body, _: &Refs, needs: &mut Needs<'_>) {
        for leg in &body.legs {
            needs.row::<Balances>(&leg.account.id(), Mode::Change);
        }
    }

    fn apply(books: &mut Books, body: &Self::Body, _: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let at = |i: usize| match (body.form, i) {
                (Form::Short, 0) => At::From,
                (Form::Short, _) => At::To,
                (Form::Legs, i) => At::Leg(i),
            };
            let mut drafts = Drafts::with_capacity(body.legs.len());
            let mut places = Vec::with_capacity(body.legs.len());
            for (i, leg) in body.legs.iter().enumerate() {
                places.push(drafts.take(books, leg.account.id(), Some(&leg.account), at(i))?);
            }
            drafts.refuse_closed()?;
            check_versions(&drafts, &body.expect)?;
            if body.form == Form::Short {
                one_asset(&drafts, places[0], places[1])?;
            }
            let legs = to_legs(&drafts, &body.legs, &places, at)?;
            let about = About {
                description: body.description.clone(),
                metadata: body.metadata.clone(),
                ..About::default()
            };
            let transfer = post(books, context, drafts, &legs, body.effective_at, about)?;
            Ok(Reply::new().id("transfer", transfer))
        })
    }
}

fn check_versions(drafts: &Drafts<'_>, expect: &[Expected]) -> Result<(), Refusal> {
    for (i, expected) in expect.iter().enumerate() {
        let place = drafts.place(expected.account.id()).expect("parsing saw a leg on it");
        let version = drafts.at(place).before.version;
        if version != expected.version {
            return Err(Refusal::new(
                codes::VERSION_CONFLICT,
                format!("expect[{i}].version"),
                format!(
                    "the account {} is at version {version}, not {}",
                    expected.account, expected.version
                ),
            ));
        }
    }
    Ok(())
}

pub(crate) fn one_asset(drafts: &Drafts<'_>, from: usize, to: usize) -> Result<(), Refusal> {
    let (from, to) = (drafts.at(from), drafts.at(to));
    if from.before.asset == to.before.asset {
        return Ok(());
    }
    let message = format!(
        "{} is in {}, {} in {}",
        from.name(),
        from.before.asset,
        to.name(),
        to.before.asset
    );
    Err(Refusal::new(codes::ASSET_MISMATCH, "to", message))
}

/// The legs in the smallest units of their assets, which they sum to zero in.
pub(crate) fn to_legs(
    drafts: &Drafts<'_>,
    legs: &[BodyLeg],
    places: &[usize],
    at: impl Fn(usize) -> At,
) -> Result<Vec<Leg>, Refusal> {
    let mut out = Vec::with_capacity(legs.len());
    let mut refused = None;
    for (i, (leg, place)) in legs.iter().zip(places).enumerate() {
        let (balance, at) = (&drafts.at(*place).before, at(i));
        match amount::minor(leg.amount, balance.scale, balance.asset, || at.amount()) {
            Ok(amount) => out.push(Leg {
                place: *place,
                amount,
                at,
            }),
            // One code after the other over all legs: the refusal does not depend on which leg
            // stands first.
            Err(refusal) if refusal.code == codes::AMOUNT_TOO_FINE => return Err(refusal),
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    if let Some(refusal) = refused {
        return Err(refusal);
    }
    let mut sums: Vec<(AssetCode, u8, Sum)> = Vec::with_capacity(2);
    for leg in &out {
        let balance = &drafts.at(leg.place).before;
        let i = sums
            .iter()
            .position(|(asset, ..)| *asset == balance.asset)
            .unwrap_or_else(|| {
                sums.push((balance.asset, balance.scale, Sum::default()));
                sums.len() - 1
            });
        sums[i].2.add(leg.amount);
    }
    match sums.iter().find(|(.., sum)| sum.value() != Some(0)) {
        None => Ok(out),
        Some((asset, scale, sum)) => {
            let sum = sum
                .value()
                .map_or_else(|| "a very large number".to_owned(), |sum| render(sum, *scale));
            let message = format!("the legs in {asset} sum to {sum}, not to zero");
            Err(Refusal::new(codes::ASSET_UNBALANCED, "legs", message))
        }
    }
}

/// Appends a part of a field whose parts vary in length.
pub(crate) fn push(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&u32::try_from(part.len()).expect("bodies are far smaller").to_be_bytes());
    out.extend_from_slice(part);
}

pub(crate) fn leg_bytes(legs: &[BodyLeg]) -> Vec<u8> {
    let mut out = Vec::with_capacity(legs.len() * 48);
    for leg in legs {
        push(&mut out, leg.account.as_str().as_bytes());
        push(&mut out, leg.amount.to_string().as_bytes());
    }
    out
}

/// The fields that every transfer has, in the normal form.
pub(crate) fn about_fields(
    effective_at: Option<Timestamp>,
    description: Option<&str>,
    metadata: Option<&str>,
    fields: &mut Fields,
) {
    fields.optional(
        "effective_at",
        effective_at.map(time::bytes).as_ref().map(<[u8; 8]>::as_slice),
    );
    fields.optional("description", description.map(str::as_bytes));
    fields.optional("metadata", metadata.map(str::as_bytes));
}
