//! Idempotency keys.

use std::fmt;

use jiff::Timestamp;
use uuid::Uuid;

use crate::error::Invalid;

/// The longest text key, in characters (all of them ASCII).
pub const MAX_KEY_LEN: usize = 255;

/// The caller's idempotency key: a UUID, or 1–255 visible ASCII characters; or one that our own
/// workers and imports make. In storage a tag byte tells them apart, so that a 16-character text
/// key never equals the 16 bytes of a UUID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Uuid(Uuid),
    Text(Box<str>),
    /// Made by workers and imports; cannot be sent over HTTP.
    Internal(Box<str>),
}

const TAG_UUID: u8 = 1;
const TAG_TEXT: u8 = 2;
const TAG_INTERNAL: u8 = 3;

impl Key {
    /// Reads a key as a caller sends it. A hyphenated UUID in any case is a UUID; everything else
    /// is text, compared byte by byte.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::new(
                "key_empty",
                "key",
                "the key is empty; send a UUID (v7 advised) or 1 to 255 visible ASCII characters",
            ));
        }
        if let Some(position) = text.bytes().position(|b| !b.is_ascii_graphic()) {
            return Err(Invalid::new(
                "key_characters",
                "key",
                format!("the key has a character at byte {position} that is not visible ASCII; use ! to ~ only"),
            ));
        }
        if text.len() > MAX_KEY_LEN {
            return Err(Invalid::new(
                "key_too_long",
                "key",
                format!("the key is {} characters long; {MAX_KEY_LEN} is the most", text.len()),
            ));
        }
        match text.len() {
            36 => match Uuid::try_parse(text) {
                Ok(uuid) => Ok(Self::Uuid(uuid)),
                Err(_) => Ok(Self::Text(text.into())),
            },
            _ => Ok(Self::Text(text.into())),
        }
    }

    /// The bytes in storage: the tag, then the key.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let (tag, bytes): (u8, &[u8]) = match self {
            Self::Uuid(uuid) => (TAG_UUID, uuid.as_bytes()),
            Self::Text(text) => (TAG_TEXT, text.as_bytes()),
            Self::Internal(text) => (TAG_INTERNAL, text.as_bytes()),
        };
        let mut out = Vec::with_capacity(bytes.len() + 1);
        out.push(tag);
        out.extend_from_slice(bytes);
        out
    }

    /// Reads what [`Self::to_bytes`] wrote.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        match *tag {
            TAG_UUID => Uuid::from_slice(rest).ok().map(Self::Uuid),
            TAG_TEXT => std::str::from_utf8(rest).ok().map(|text| Self::Text(text.into())),
            TAG_INTERNAL => std::str::from_utf8(rest).ok().map(|text| Self::Internal(text.into())),
            _ => None,
        }
    }

    /// The time inside a UUIDv7 key, which decides its stub generation.
    #[must_use]
    pub fn v7_time(&self) -> Option<Timestamp> {
        let Self::Uuid(uuid) = self else { return None };
        if uuid.get_version_num() != 7 {
            return None;
        }
        let (high, low, ..) = uuid.as_fields();
        let millis = (i64::from(high) << 16) | i64::from(low);
        // 48 bits of milliseconds end in the year 10889; jiff ends in 9999, and such a key is far
        // ahead of any clock either way.
        Some(Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(uuid) => uuid.fmt(f),
            Self::Text(text) => text.fmt(f),
            Self::Internal(text) => write!(f, "internal:{text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_uuid_in_another_spelling_is_the_same_key() {
        let lower = Key::parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap();
        let upper = Key::parse("01890A5D-AC96-774B-BCCE-B302099A8057").unwrap();
        assert_eq!(lower, upper);
        // Without hyphens it is text: only the hyphenated spelling is a UUID.
        assert!(matches!(
            Key::parse("01890a5dac96774bbcceb302099a8057").unwrap(),
            Key::Text(_)
        ));
    }

    #[test]
    fn a_sixteen_character_text_key_never_equals_the_bytes_of_a_uuid() {
        let text = Key::parse("abcdefghijklmnop").unwrap();
        let uuid = Key::Uuid(Uuid::from_bytes(*b"abcdefghijklmnop"));
        assert_ne!(text.to_bytes(), uuid.to_bytes());
        assert_ne!(text, uuid);
    }

    #[test]
    fn empty_too_long_and_non_ascii_keys_are_told_apart() {
        assert_eq!(Key::parse("").unwrap_err().code, "key_empty");
        assert_eq!(Key::parse(&"x".repeat(256)).unwrap_err().code, "key_too_long");
        assert!(Key::parse(&"x".repeat(255)).is_ok());
        assert_eq!(Key::parse("clé").unwrap_err().code, "key_characters");
        assert_eq!(Key::parse("a b").unwrap_err().code, "key_characters");
    }

    #[test]
    fn the_time_of_a_v7_key_is_read_from_its_first_48_bits() {
        let key = Key::parse("017f22e2-79b0-7cc3-98c4-dc0c0c07398f").unwrap();
        assert_eq!(key.v7_time().unwrap().as_millisecond(), 1_645_557_742_000);
        assert_eq!(
            Key::parse("919108f7-52d1-4320-9bac-f847db4148a8").unwrap().v7_time(),
            None
        );
    }

    proptest! {
        #[test]
        fn storage_gives_back_the_key(text in "[!-~]{1,255}") {
            let key = Key::parse(&text).unwrap();
            prop_assert_eq!(Key::from_bytes(&key.to_bytes()), Some(key));
        }
    }
}
