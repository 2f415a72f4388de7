//! Kinds that go wrong in every way a kind can.

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Kinds, Mode, Needs, Outcome, Refs, Reply};
use serde_json::value::RawValue;

use crate::add_a_kind::{Count, CountBody, Counter, Counters};

/// Counts, then panics.
pub struct Panics;

/// Writes a count that a constraint of the table, which nobody foresaw, refuses.
pub struct Unforeseen;

macro_rules! like_count {
    ($kind:ident, $name:literal, $apply:expr) => {
        impl Kind for $kind {
            const NAME: &'static str = $name;
            type Body = CountBody;
            fn parse(raw: &RawValue) -> Result<CountBody, Invalid> {
                Count::parse(raw)
            }
            fn fields(body: &CountBody, fields: &mut Fields) {
                Count::fields(body, fields);
            }
            fn needs(body: &CountBody, _: &Refs, needs: &mut Needs<'_>) {
                needs.row::<Counters>(&body.counter, Mode::Make);
            }
            fn apply(books: &mut Books, body: &CountBody, refs: &Refs, context: &mut Context) -> Outcome {
                let apply: fn(&mut Books, &CountBody, &Refs, &mut Context) -> Outcome = $apply;
                apply(books, body, refs, context)
            }
        }
    };
}

like_count!(Panics, "faulty.panics", |books, body, refs, context| {
    let _ = Count::apply(books, body, refs, context);
    panic!("as it was made to");
});

like_count!(Unforeseen, "faulty.unforeseen", |books, body, _, _| {
    if books.get::<Counters>(&body.counter).is_none() {
        books.create::<Counters>(body.counter.clone(), Counter { count: 0 });
    }
    books.change::<Counters>(&body.counter).unwrap().count = -body.by;
    Outcome::Accepted(Reply::new())
});

/// Panics before it can even say what it needs.
pub struct NeedsPanics;

impl Kind for NeedsPanics {
    const NAME: &'static str = "faulty.needs_panics";
    type Body = CountBody;
    fn parse(raw: &RawValue) -> Result<CountBody, Invalid> {
        Count::parse(raw)
    }
    fn fields(body: &CountBody, fields: &mut Fields) {
        Count::fields(body, fields);
    }
    fn needs(_: &CountBody, _: &Refs, _: &mut Needs<'_>) {
        panic!("as it was made to");
    }
    fn apply(_: &mut Books, _: &CountBody, _: &Refs, _: &mut Context) -> Outcome {
        unreachable!("it never gets here")
    }
}

pub fn register(kinds: &mut Kinds) {
    kinds.kind::<Panics>().kind::<Unforeseen>().kind::<NeedsPanics>();
}
