//! Kind `ledger.limit`: the floor or ceiling of an account becomes another.

use std::borrow::Cow;

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Kinds, Mode, Needs, Outcome, Refs, Refusal, Reply};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::account::AccountCode;
use crate::amount::{self, Decimal, render};
use crate::codes;
use crate::draft::{At, Drafts};
use crate::open::limits;
use crate::outcome::outcome;
use crate::store::Balances;

#[derive(Debug)]
pub struct Limit;

#[derive(Debug, Clone)]
pub struct LimitBody {
    pub account: AccountCode,
    /// `None` leaves the limit as it is, `Some(None)` takes it away.
    pub floor: Option<Option<Decimal>>,
    pub ceiling: Option<Option<Decimal>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    account: Cow<'a, str>,
    #[serde(default, deserialize_with = "present")]
    floor: Option<Option<String>>,
    #[serde(default, deserialize_with = "present")]
    ceiling: Option<Option<String>>,
}

/// Tells `null` from absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

impl Kind for Limit {
    const NAME: &'static str = "ledger.limit";
    type Body = LimitBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let account = AccountCode::parse(&json.account, "account")?;
        if json.floor.is_none() && json.ceiling.is_none() {
            return Err(Invalid::new(
                codes::LIMIT_EMPTY,
                "",
                "say a floor, a ceiling or both; null takes a limit away, and what is not said stays",
            ));
        }
        let text = |limit: &Option<Option<String>>| limit.clone().flatten();
        let (floor, ceiling) = limits(text(&json.floor).as_deref(), text(&json.ceiling).as_deref())?;
        Ok(LimitBody {
            account,
            floor: json.floor.map(|_| floor),
            ceiling: json.ceiling.map(|_| ceiling),
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        // Absent, taken away, and a number: three things.
        let limit = |limit: Option<Option<Decimal>>| {
            limit.map(|limit| limit.map(|limit| limit.to_string().into_bytes()).unwrap_or_default())
        };
        fields.field("account", body.account.as_str().as_bytes());
        fields.optional("floor", limit(body.floor).as_deref());
        fields.optional("ceiling", limit(body.ceiling).as_deref());
    }

    fn needs(body: &Self::Body, _: &Refs, needs: &mut Needs<'_>) {
        needs.row::<Balances>(&body.account.id(), Mode::Change);
    }

    fn apply(books: &mut Books, body: &Self::Body, _: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let mut drafts = Drafts::with_capacity(1);
            let place = drafts.take(books, body.account.id(), Some(&body.account), At::Account)?;
            drafts.refuse_closed()?;
            let draft = drafts.at_mut(place);
            let (asset, scale) = (draft.before.asset, draft.before.scale);
            let limits = [body.floor.flatten(), body.ceiling.flatten()];
            let [floor, ceiling] = amount::minors(limits, ["floor", "ceiling"], scale, asset)?;
            if body.floor.is_some() {
                draft.after.floor = floor;
            }
            if body.ceiling.is_some() {
                draft.after.ceiling = ceiling;
            }
            let after = &draft.after;
            if body.floor.is_some() && after.is_under_floor() {
                let available = render(after.available(), scale);
                let message = format!(
                    "{} has {available} {asset} available, less than that floor",
                    draft.name()
                );
                return Err(Refusal::new(codes::LIMIT_VIOLATED, "floor", message));
            }
            if body.ceiling.is_some() && after.is_over_ceiling() {
                let posted = render(after.posted, scale);
                let message = format!("{} has {posted} {asset} posted, more than that ceiling", draft.name());
                return Err(Refusal::new(codes::LIMIT_VIOLATED, "ceiling", message));
            }
            draft.after.version += 1;
            let time = drafts.time(context.now());
            drafts.write(books, time);
            Ok(Reply::new().text("account", body.account.as_str()))
        })
    }
}
