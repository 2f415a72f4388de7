//! What can be wrong with a request, and what can be wrong with us.

use std::sync::Arc;

/// A value that cannot be taken, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    pub field: &'static str,
    pub message: String,
}

impl Invalid {
    pub(crate) fn new(field: &'static str, message: impl Into<String>) -> Self {
        Self {
            field,
            message: message.into(),
        }
    }
}

/// The database could not be asked who is asking. Shared by everybody who waited for that answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the database could not be asked who is asking")]
pub struct Unavailable(#[source] pub Arc<counterfoil_pg::Error>);
