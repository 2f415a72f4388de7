//! Kind `ledger.open`: an account comes into being.

use std::borrow::Cow;

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Kinds, Mode, Needs, Outcome, Refs, Refusal, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::{Account, AccountCode, Balance};
use crate::amount::{self, Decimal};
use crate::asset::AssetCode;
use crate::outcome::outcome;
use crate::store::{Accounts, Assets, Balances};
use crate::{codes, text};

#[derive(Debug)]
pub struct Open;

#[derive(Debug, Clone)]
pub struct OpenBody {
    pub account: AccountCode,
    pub asset: AssetCode,
    pub floor: Option<Decimal>,
    pub ceiling: Option<Decimal>,
    pub metadata: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    account: Cow<'a, str>,
    #[serde(borrow)]
    asset: Cow<'a, str>,
    #[serde(borrow)]
    floor: Option<Cow<'a, str>>,
    #[serde(borrow)]
    ceiling: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
}

/// Reads the two limits of a body.
pub(crate) fn limits(
    floor: Option<&str>,
    ceiling: Option<&str>,
) -> Result<(Option<Decimal>, Option<Decimal>), Invalid> {
    let floor = floor.map(|floor| amount::any(floor, "floor")).transpose()?;
    let ceiling = ceiling.map(|ceiling| amount::any(ceiling, "ceiling")).transpose()?;
    if let (Some(low), Some(high)) = (floor, ceiling)
        && low > high
    {
        let message = format!("the floor {low} lies above the ceiling {high}");
        return Err(Invalid::new(codes::LIMITS_REVERSED, "floor", message));
    }
    Ok((floor, ceiling))
}

impl Kind for Open {
    const NAME: &'static str = "ledger.open";
    type Body = OpenBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let account = AccountCode::parse(&json.account, "account")?;
        let asset = AssetCode::parse(&json.asset, "asset")?;
        let (floor, ceiling) = limits(json.floor.as_deref(), json.ceiling.as_deref())?;
        let excludes = |field: &str, limit: Decimal| {
            let message = format!("an account opens at zero, which the {field} {limit} does not allow");
            Invalid::new(codes::LIMITS_EXCLUDE_ZERO, field, message)
        };
        if let Some(floor) = floor.filter(|floor| *floor > Decimal::ZERO) {
            return Err(excludes("floor", floor));
        }
        if let Some(ceiling) = ceiling.filter(|ceiling| ceiling.is_negative()) {
            return Err(excludes("ceiling", ceiling));
        }
        let metadata = text::metadata(json.metadata, "metadata")?;
        Ok(OpenBody {
            account,
            asset,
            floor,
            ceiling,
            metadata,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        let limit = |limit: Option<Decimal>| limit.map(|limit| limit.to_string().into_bytes());
        fields.field("account", body.account.as_str().as_bytes());
        fields.field("asset", body.asset.as_str().as_bytes());
        fields.optional("floor", limit(body.floor).as_deref());
        fields.optional("ceiling", limit(body.ceiling).as_deref());
        fields.optional("metadata", body.metadata.as_deref().map(str::as_bytes));
    }

    fn needs(body: &Self::Body, _: &Refs, needs: &mut Needs<'_>) {
        needs.row::<Assets>(&body.asset, Mode::Read);
        needs.row::<Balances>(&body.account.id(), Mode::Make);
    }

    fn apply(books: &mut Books, body: &Self::Body, _: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let Some(asset) = books.get::<Assets>(&body.asset).copied() else {
                let message = format!("the asset {} is not known; make it with ledger.asset", body.asset);
                return Err(Refusal::new(codes::ASSET_UNKNOWN, "asset", message));
            };
            if books.get::<Balances>(&body.account.id()).is_some() {
                let message = format!("the account {} has been opened before", body.account);
                return Err(Refusal::new(codes::ACCOUNT_EXISTS, "account", message));
            }
            let limits = [body.floor, body.ceiling];
            let [floor, ceiling] = amount::minors(limits, ["floor", "ceiling"], asset.scale, body.asset)?;
            let now = context.now();
            let balance = Balance::open(body.asset, asset.scale, floor, ceiling, now);
            books.create::<Balances>(body.account.id(), balance);
            books.append::<Accounts>(Account {
                code: body.account.clone(),
                asset: body.asset,
                metadata: body.metadata.clone(),
                recorded_at: now,
            });
            Ok(Reply::new().text("account", body.account.as_str()))
        })
    }
}
