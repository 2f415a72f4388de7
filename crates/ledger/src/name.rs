//! How a body names a hold or a transfer: by its id, or by the key of the intent that made it.

use counterfoil_intent::{Fields, Invalid, Key, Name};
use uuid::Uuid;

use crate::codes;

/// The two fields that name one thing, such as `hold` and `hold_key`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Noun {
    pub(crate) id: &'static str,
    pub(crate) key: &'static str,
}

pub(crate) const HOLD: Noun = Noun {
    id: "hold",
    key: "hold_key",
};
pub(crate) const TRANSFER: Noun = Noun {
    id: "transfer",
    key: "transfer_key",
};

impl Noun {
    pub(crate) fn parse(self, id: Option<&str>, key: Option<&str>) -> Result<Name, Invalid> {
        match (id, key) {
            (Some(id), None) => {
                // One spelling only, as everywhere an id is written.
                let hyphenated = if id.len() == 36 { Uuid::try_parse(id).ok() } else { None };
                hyphenated.map(Name::Id).ok_or_else(|| {
                    Invalid::new(
                        codes::ID_INVALID,
                        self.id,
                        "an id is a UUID with hyphens, as it stands in a result",
                    )
                })
            }
            (None, Some(key)) => match Key::parse(key) {
                Ok(key) => Ok(Name::Key(key)),
                Err(invalid) => Err(Invalid {
                    field: self.key.to_owned(),
                    ..invalid
                }),
            },
            _ => {
                let (id, key) = (self.id, self.key);
                let message = format!("say either `{id}`, an id, or `{key}`, the key of the intent that made it");
                Err(Invalid::new(codes::NAME_SHAPE, id, message))
            }
        }
    }

    pub(crate) fn fields(self, name: &Name, fields: &mut Fields) {
        let (id, key) = match name {
            Name::Id(id) => (Some(id.as_bytes().as_slice()), None),
            Name::Key(key) => (None, Some(key.to_bytes())),
        };
        fields.optional(self.id, id);
        fields.optional(self.key, key.as_deref());
    }

    /// The field that the body used.
    pub(crate) fn field(self, name: &Name) -> &'static str {
        match name {
            Name::Id(_) => self.id,
            Name::Key(_) => self.key,
        }
    }
}
