//! What came of an intent.

use std::borrow::Cow;
use std::fmt::Write as _;

use uuid::Uuid;

/// The outcome of one effect.
#[derive(Debug)]
pub enum Outcome {
    Accepted(Reply),
    Refused(Refusal),
}

impl From<Refusal> for Outcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// A refusal that needed the database to be known: HTTP 409, with a stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Stable; listed in `docs/reference/codes.md`.
    pub code: &'static str,
    pub field: String,
    pub message: Cow<'static, str>,
}

impl Refusal {
    pub fn new(code: &'static str, field: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            field: field.into(),
            message: message.into(),
        }
    }
}

/// The result of an accepted effect: a flat JSON object. The ids in it can be named by later
/// intents through the key of this one.
#[derive(Debug, Default)]
pub struct Reply {
    json: String,
    pub(crate) made: Vec<(&'static str, Uuid)>,
}

impl Reply {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Something this effect made: `noun` is the name later intents use for it ("hold", "transfer").
    #[must_use]
    pub fn id(mut self, noun: &'static str, id: Uuid) -> Self {
        self.separate();
        write!(self.json, "\"{noun}\":\"{id}\"").expect("writing to a String cannot fail");
        self.made.push((noun, id));
        self
    }

    /// Any other field of the result.
    #[must_use]
    pub fn text(mut self, name: &'static str, value: &str) -> Self {
        self.separate();
        write!(self.json, "\"{name}\":").expect("writing to a String cannot fail");
        self.json
            .push_str(&serde_json::to_string(value).expect("a string is always JSON"));
        self
    }

    fn separate(&mut self) {
        self.json.push(if self.json.is_empty() { '{' } else { ',' });
    }

    pub(crate) fn into_json(mut self) -> String {
        if self.json.is_empty() {
            self.json.push('{');
        }
        self.json.push('}');
        self.json
    }
}
