//! Imported transfers, which stay single for ever. Internal kind `ledger.import`.
//!
//! A stub is kept for a month; a journal may be imported again in a year. So an imported transfer
//! also leaves a row of its source key with a hash of its body, and that row decides: the same body
//! under the same source is known, and nothing is done; another body is refused.

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Mode, Needs, Outcome, Refs, Refusal, Reply};
use jiff::Timestamp;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::account::AccountCode;
use crate::amount::Decimal;
use crate::asset::AssetCode;
use crate::codes;
use crate::draft::{At, Drafts};
use crate::expire::not_public;
use crate::outcome::outcome;
use crate::posting::{About, post};
use crate::store::{Balances, Sources};
use crate::transfer::{BodyLeg, about_fields, balanced, count, leg_bytes, push, to_legs};

/// The longest source key, in bytes.
pub const MAX_SOURCE: usize = 255;

/// The row of a source key. It never changes.
#[derive(Debug, Clone)]
pub struct Source {
    pub transfer: Uuid,
    /// Of the body in its normal form.
    pub hash: [u8; 32],
    pub recorded_at: Timestamp,
}

#[derive(Debug)]
pub struct Import;

#[derive(Debug, Clone)]
pub struct ImportBody {
    source: Box<str>,
    legs: Vec<BodyLeg>,
    assets: Vec<AssetCode>,
    effective_at: Timestamp,
    description: Option<Box<str>>,
    hash: [u8; 32],
}

impl ImportBody {
    /// A transfer as an import reads it; each leg says its asset. There is no way here from JSON.
    /// `source` is 1 to 255 bytes without control characters, and the description has been checked.
    pub fn new(
        source: &str,
        legs: Vec<(AccountCode, AssetCode, Decimal)>,
        effective_at: Timestamp,
        description: Option<Box<str>>,
    ) -> Result<Self, Invalid> {
        count(legs.len(), "")?;
        let assets: Vec<_> = legs.iter().map(|(_, asset, _)| *asset).collect();
        let legs: Vec<_> = legs
            .into_iter()
            .map(|(account, _, amount)| BodyLeg { account, amount })
            .collect();
        balanced(&legs, "")?;
        let mut normal = Vec::new();
        push(&mut normal, &crate::time::bytes(effective_at));
        push(&mut normal, description.as_deref().unwrap_or_default().as_bytes());
        push(&mut normal, &leg_bytes(&legs));
        push(&mut normal, &asset_bytes(&assets));
        let hash = Sha256::digest(&normal).into();
        Ok(Self {
            source: source.into(),
            legs,
            assets,
            effective_at,
            description,
            hash,
        })
    }

    /// The accounts it touches, with the assets they should be in.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = (&AccountCode, AssetCode)> {
        self.legs
            .iter()
            .map(|leg| &leg.account)
            .zip(self.assets.iter().copied())
    }

    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }
}

fn asset_bytes(assets: &[AssetCode]) -> Vec<u8> {
    let mut out = Vec::new();
    for asset in assets {
        push(&mut out, asset.as_str().as_bytes());
    }
    out
}

impl Kind for Import {
    const NAME: &'static str = "ledger.import";
    const PUBLIC: bool = false;
    type Body = ImportBody;

    fn parse(_: &RawValue) -> Result<Self::Body, Invalid> {
        Err(not_public())
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        fields.field("source", body.source.as_bytes());
        fields.field("legs", &leg_bytes(&body.legs));
        fields.field("assets", &asset_bytes(&body.assets));
        about_fields(Some(body.effective_at), body.description.as_deref(), None, fields);
    }

    fn needs(body: &Self::Body, _: &Refs, needs: &mut Needs<'_>) {
        needs.row::<Sources>(&body.source, Mode::Make);
        for leg in &body.legs {
            needs.row::<Balances>(&leg.account.id(), Mode::Change);
        }
    }

    fn apply(books: &mut Books, body: &Self::Body, _: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            if let Some(known) = books.get::<Sources>(&body.source) {
                if known.hash == body.hash {
                    let transfer = known.transfer.to_string();
                    return Ok(Reply::new().text("transfer", &transfer).text("known", "yes"));
                }
                let message = format!(
                    "the key {} was imported before as the transfer {}, and it was another transfer",
                    body.source, known.transfer
                );
                return Err(Refusal::new(codes::SOURCE_EXISTS, "key", message));
            }
            let mut drafts = Drafts::with_capacity(body.legs.len());
            let mut places = Vec::with_capacity(body.legs.len());
            for (i, leg) in body.legs.iter().enumerate() {
                places.push(drafts.take(books, leg.account.id(), Some(&leg.account), At::Leg(i))?);
            }
            drafts.refuse_closed()?;
            for (i, (place, asset)) in places.iter().zip(&body.assets).enumerate() {
                let draft = drafts.at(*place);
                if draft.before.asset != *asset {
                    let message = format!("{} is in {}, not in {asset}", draft.name(), draft.before.asset);
                    return Err(Refusal::new(codes::ASSET_MISMATCH, At::Leg(i).account(), message));
                }
            }
            let legs = to_legs(&drafts, &body.legs, &places, At::Leg)?;
            let about = About {
                description: body.description.clone(),
                ..About::default()
            };
            let transfer = post(books, context, drafts, &legs, Some(body.effective_at), about)?;
            let source = Source {
                transfer,
                hash: body.hash,
                recorded_at: context.now(),
            };
            books.create::<Sources>(body.source.clone(), source);
            Ok(Reply::new().id("transfer", transfer))
        })
    }
}
