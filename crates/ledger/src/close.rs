//! Kind `ledger.close`: nothing moves on an account any more.

use std::borrow::Cow;

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Kinds, Mode, Needs, Outcome, Refs, Refusal, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::AccountCode;
use crate::amount::render;
use crate::codes;
use crate::draft::{At, Drafts};
use crate::outcome::outcome;
use crate::store::Balances;

#[derive(Debug)]
pub struct Close;

#[derive(Debug, Clone)]
pub struct CloseBody {
    pub account: AccountCode,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    account: Cow<'a, str>,
}

impl Kind for Close {
    const NAME: &'static str = "ledger.close";
    type Body = CloseBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        Ok(CloseBody {
            account: AccountCode::parse(&json.account, "account")?,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        fields.field("account", body.account.as_str().as_bytes());
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
            let balance = &draft.before;
            if balance.posted != 0 {
                let posted = render(balance.posted, balance.scale);
                let message = format!(
                    "{} has {posted} {} posted; move it away first",
                    draft.name(),
                    balance.asset
                );
                return Err(Refusal::new(codes::ACCOUNT_NOT_EMPTY, "account", message));
            }
            // Holds that have expired hold nothing back; the worker takes them out of a closed
            // account as out of any other.
            if balance.live() != 0 {
                let held = render(balance.live(), balance.scale);
                let message = format!("{} has {held} {} held; release it first", draft.name(), balance.asset);
                return Err(Refusal::new(codes::ACCOUNT_HAS_HOLDS, "account", message));
            }
            draft.after.closed_at = Some(time);
            draft.after.version += 1;
            drafts.write(books, time);
            Ok(Reply::new().text("account", body.account.as_str()))
        })
    }
}
