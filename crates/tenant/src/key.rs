//! API keys: what a caller shows to say who it is.

use std::fmt::{self, Write as _};

use counterfoil_pg::TenantId;
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use crate::Invalid;

/// What every token begins with, so that scanners for leaked secrets know it.
const MARK: &str = "cf_";

/// 256 random bits, in hexadecimal.
const DIGITS: usize = 64;

/// How many digits may be shown: enough to tell keys apart, nothing to guess the rest from.
const SHOWN: usize = 8;

pub(crate) type Hash = [u8; 32];

/// Whom a key speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Caller {
    Tenant(TenantId),
    /// Whoever runs the installation.
    Operator,
}

impl Caller {
    pub(crate) fn from_holder(holder: Option<i64>) -> Self {
        holder.map_or(Self::Operator, |id| Self::Tenant(TenantId(id)))
    }

    pub(crate) fn holder(self) -> Option<i64> {
        match self {
            Self::Tenant(id) => Some(id.0),
            Self::Operator => None,
        }
    }
}

/// A whole key. It exists when it is made and when it is sent, and in between nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    token: String,
}

impl ApiKey {
    #[must_use]
    pub fn generate() -> Self {
        let random: [u8; DIGITS / 2] = rand::random();
        let mut token = String::with_capacity(MARK.len() + DIGITS);
        token.push_str(MARK);
        for byte in random {
            write!(token, "{byte:02x}").expect("writing to a String cannot fail");
        }
        Self { token }
    }

    /// Reads what a caller sent. `None`: it cannot be a key, and nobody needs to be asked.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        let digits = token.strip_prefix(MARK)?;
        let well_formed = digits.len() == DIGITS && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        well_formed.then(|| Self {
            token: token.to_owned(),
        })
    }

    /// The secret itself: to be shown once.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.token[..MARK.len() + SHOWN]
    }

    pub(crate) fn hash(&self) -> Hash {
        Sha256::digest(self.token.as_bytes()).into()
    }
}

/// Written by hand, so that no token is ever printed.
impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiKey({}…)", self.prefix())
    }
}

/// A key as it is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: i64,
    pub prefix: String,
    /// `None`: an operator's.
    pub tenant: Option<TenantId>,
    pub label: String,
    pub created_at: Timestamp,
    pub revoked_at: Option<Timestamp>,
}

/// What a person calls a key. May be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label(pub(crate) String);

impl Label {
    /// Longest, in characters; also a CHECK of the table.
    pub const MAX: usize = 200;

    pub fn new(text: &str) -> Result<Self, Invalid> {
        let text = text.trim();
        if text.chars().count() > Self::MAX {
            return Err(Invalid::new(
                "label",
                format!("is longer than {} characters", Self::MAX),
            ));
        }
        if text.contains(char::is_control) {
            return Err(Invalid::new("label", "has a control character in it"));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_key_is_read_back_and_no_two_are_equal() {
        let (a, b) = (ApiKey::generate(), ApiKey::generate());
        assert_eq!(ApiKey::parse(a.token()), Some(a.clone()));
        assert_ne!(a.hash(), b.hash());
    }

    #[test]
    fn what_cannot_be_a_key_is_none() {
        let digits = "0123456789abcdef".repeat(4);
        assert!(ApiKey::parse(&format!("cf_{digits}")).is_some());
        for bad in [
            String::new(),
            digits.clone(),
            format!("CF_{digits}"),
            format!("cf_{}", digits.to_uppercase()),
            format!("cf_{digits}0"),
            format!("cf_{}", &digits[1..]),
            format!("cf_{}é", &digits[2..]),
            format!(" cf_{digits}"),
        ] {
            assert_eq!(ApiKey::parse(&bad), None, "{bad:?}");
        }
    }

    #[test]
    fn debug_shows_the_prefix_and_no_more() {
        let key = ApiKey::generate();
        let printed = format!("{key:?} {key:#?}");
        assert!(printed.contains(key.prefix()), "{printed}");
        assert!(!printed.contains(&key.token()[..key.prefix().len() + 1]), "{printed}");
    }
}
