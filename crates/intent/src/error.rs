//! What can be known without the database to be wrong.

use std::borrow::Cow;

/// A request that is wrong on its face: HTTP 400, no transaction, no stub.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// Stable; listed in `docs/reference/codes.md`.
    pub code: &'static str,
    /// The path of the field that is wrong, such as `body.legs[3].amount`.
    pub field: String,
    pub message: Cow<'static, str>,
}

impl Invalid {
    pub fn new(code: &'static str, field: impl Into<String>, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            field: field.into(),
            message: message.into(),
        }
    }

    /// The same, found inside `prefix`.
    #[must_use]
    pub fn within(mut self, prefix: &str) -> Self {
        self.field = match self.field.as_str() {
            "" => prefix.to_owned(),
            field if field.starts_with('[') => format!("{prefix}{field}"),
            field => format!("{prefix}.{field}"),
        };
        self
    }
}
