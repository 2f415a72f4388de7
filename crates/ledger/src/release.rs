//! Kind `ledger.release`: what was held can be used again.

use std::borrow::Cow;

use counterfoil_intent::{Asks, Books, Context, Fields, Invalid, Kind, Kinds, Name, Needs, Outcome, Refs, Reply};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::amount::render;
use crate::draft::{At, Drafts};
use crate::hold::{self, HoldState};
use crate::name;
use crate::outcome::outcome;
use crate::store::{HoldAccount, Holds};

#[derive(Debug)]
pub struct Release;

#[derive(Debug, Clone)]
pub struct ReleaseBody {
    pub hold: Name,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    hold: Option<Cow<'a, str>>,
    #[serde(borrow)]
    hold_key: Option<Cow<'a, str>>,
}

impl Kind for Release {
    const NAME: &'static str = "ledger.release";
    type Body = ReleaseBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        Ok(ReleaseBody {
            hold: name::HOLD.parse(json.hold.as_deref(), json.hold_key.as_deref())?,
        })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        name::HOLD.fields(&body.hold, fields);
    }

    fn refs(body: &Self::Body, asks: &mut Asks) {
        asks.ask::<HoldAccount>(&body.hold);
    }

    fn needs(body: &Self::Body, refs: &Refs, needs: &mut Needs<'_>) {
        hold::needs(&body.hold, refs, needs);
    }

    fn apply(books: &mut Books, body: &Self::Body, refs: &Refs, context: &mut Context) -> Outcome {
        outcome(|| {
            let (id, mut row) = hold::live(books, refs, context, &body.hold)?;
            let mut drafts = Drafts::with_capacity(1);
            let place = drafts.take(books, row.account, None, At::Hold(name::HOLD.field(&body.hold)))?;
            let time = drafts.time(context.now());
            let draft = drafts.at_mut(place);
            let scale = draft.before.scale;
            draft.after.held -= row.rest();
            draft.after.version += 1;
            let released = render(row.rest(), scale);
            row.state = HoldState::Released;
            row.changed_at = time;
            drafts.write(books, time);
            *books.change::<Holds>(&id).expect("it was read above") = row;
            Ok(Reply::new().text("released", &released))
        })
    }
}
