//! The row kept for an intent.

use counterfoil_pg::{Error, Scope, TenantId, Tx};
use jiff::Timestamp;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::key::Key;

/// What came of an intent, as stored in the same transaction as its effects.
#[derive(Debug, Clone)]
pub struct Stub {
    pub tenant: TenantId,
    pub key: Key,
    /// The name of the kind, or `all`.
    pub kind: Box<str>,
    pub accepted: bool,
    /// JSON: the result, or `{"code", "field", "message"}`. Kept and replayed letter by letter.
    pub result: Box<str>,
    pub recorded_at: Timestamp,
    /// Which submission left it: after a lost COMMIT a caller's own stub is a first answer.
    pub(crate) origin: i64,
    pub(crate) hashes: Box<[u8]>,
}

impl Stub {
    /// The id under `noun` in the result, if there is exactly one.
    pub(crate) fn made(&self, noun: &str) -> Option<Uuid> {
        if !self.accepted {
            return None;
        }
        let result: serde_json::Value = serde_json::from_str(&self.result).ok()?;
        let one = |object: &serde_json::Value| object.get(noun)?.as_str()?.parse().ok();
        match result.get("all").and_then(serde_json::Value::as_array) {
            None => one(&result),
            Some(effects) => {
                let mut found = effects.iter().filter_map(one);
                match (found.next(), found.next()) {
                    (Some(id), None) => Some(id),
                    _ => None,
                }
            }
        }
    }

    /// One tenant's stub, if there is one, and the time as of which there is none.
    pub async fn find(scope: &Scope, tx: &Tx, tenant: TenantId, key: &Key) -> Result<(Option<Self>, Timestamp), Error> {
        crate::store::get(scope, tx, tenant, key).await
    }

    /// The refusal's code, where it was refused.
    #[must_use]
    pub fn refusal(&self) -> Option<StoredRefusal<'_>> {
        if self.accepted {
            None
        } else {
            serde_json::from_str(&self.result).ok()
        }
    }

    /// The result as JSON, for embedding in a larger document without parsing it.
    #[must_use]
    pub fn raw_result(&self) -> &RawValue {
        serde_json::from_str(&self.result).expect("a stub's result is JSON")
    }
}

/// A refusal as it stands in a stub.
#[derive(Debug, serde::Deserialize)]
pub struct StoredRefusal<'a> {
    #[serde(borrow)]
    pub code: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    pub field: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    pub message: std::borrow::Cow<'a, str>,
}
