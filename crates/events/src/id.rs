//! Identity: which events are the same one.
//!
//! A UUIDv7 carries a time, so the id alone is the identity, and whatever else is sent with it later is
//! another account of the same event. Any other id says nothing about when, and its partition could not be
//! told from it; it is one with its time, and the pair is kept as a UUIDv8 in the layout of a UUIDv7: 48
//! bits of milliseconds, then 74 bits of a hash over the id and the time to the microsecond.

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The longest id that is no UUID, in bytes.
pub(crate) const MAX: usize = 255;

/// What the caller calls the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// A UUIDv7, and the time in it.
    Dated(Uuid, Timestamp),
    Undated(Undated<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undated<'a> {
    Uuid(Uuid),
    Text(&'a str),
}

/// Reads an id. `None`: empty, too long, or with characters that are not visible ASCII.
pub(crate) fn read(text: &str) -> Option<Name<'_>> {
    if text.len() == 36
        && let Ok(uuid) = Uuid::try_parse(text)
    {
        return Some(match dated(uuid) {
            Some(at) => Name::Dated(uuid, at),
            None => Name::Undated(Undated::Uuid(uuid)),
        });
    }
    let fine = (1..=MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    fine.then_some(Name::Undated(Undated::Text(text)))
}

/// The time of a UUIDv7.
fn dated(uuid: Uuid) -> Option<Timestamp> {
    let v7 = uuid.get_version_num() == 7 && uuid.get_variant() == uuid::Variant::RFC4122;
    v7.then(|| millis(uuid))
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
}

/// The first 48 bits of an id: milliseconds since 1970.
pub(crate) fn millis(id: Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 80).expect("48 bits fit")
}

impl Undated<'_> {
    /// The identity of the pair. `None`: before 1970 or after 10889, where the layout has no place.
    pub(crate) fn at(self, at: Timestamp) -> Option<Uuid> {
        let ms = u64::try_from(at.as_microsecond().div_euclid(1_000))
            .ok()
            .filter(|ms| *ms < 1 << 48)?;
        let mut hash = Sha256::new();
        // The tag keeps a text of sixteen characters from being the UUID of the same bytes.
        match self {
            Self::Uuid(uuid) => {
                hash.update([1]);
                hash.update(uuid.as_bytes());
            }
            Self::Text(text) => {
                hash.update([2]);
                hash.update(text.as_bytes());
            }
        }
        hash.update(at.as_microsecond().to_be_bytes());
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash.finalize()[..16]);
        bytes[..6].copy_from_slice(&ms.to_be_bytes()[2..]);
        Some(
            uuid::Builder::from_bytes(bytes)
                .with_version(uuid::Version::Custom)
                .into_uuid(),
        )
    }
}

/// The least and the greatest id of a stretch of milliseconds, ends included.
pub(crate) fn range(from_ms: i64, to_ms: i64) -> (Uuid, Uuid) {
    let most = (1_i64 << 48) - 1;
    let at = |ms: i64| u128::from(ms.clamp(0, most).unsigned_abs()) << 80;
    (
        Uuid::from_u128(at(from_ms)),
        Uuid::from_u128(at(to_ms) | ((1_u128 << 80) - 1)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_microsecond(micros).unwrap()
    }

    fn undated(text: &str) -> Undated<'_> {
        match read(text) {
            Some(Name::Undated(undated)) => undated,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_uuid_v7_is_its_own_identity_and_any_other_id_is_one_with_its_time() {
        let v7 = "0198f2a0-7c3b-7def-8123-456789abcdef";
        assert_eq!(read(v7), read(&v7.to_uppercase()));
        assert!(matches!(read(v7), Some(Name::Dated(_, time)) if time.as_millisecond() == 0x0198_f2a0_7c3b));
        // Version 7 of another variant carries no time.
        assert!(matches!(
            read("0198f2a0-7c3b-7def-0123-456789abcdef"),
            Some(Name::Undated(_))
        ));
        let (a, b) = (undated("click-1"), undated("click-2"));
        assert_eq!(a.at(at(1_000_000)), a.at(at(1_000_000)));
        assert_ne!(a.at(at(1_000_000)), a.at(at(1_000_001)));
        assert_ne!(a.at(at(1_000_000)), b.at(at(1_000_000)));
        assert_eq!(a.at(at(-1)), None);
    }

    #[test]
    fn a_text_never_is_the_uuid_of_its_bytes() {
        let text = "abcdefghijklmnop";
        let uuid = Uuid::from_slice(text.as_bytes()).unwrap().to_string();
        assert_ne!(undated(text).at(at(5)), undated(&uuid).at(at(5)));
    }

    #[test]
    fn an_id_is_one_to_255_visible_characters() {
        for bad in ["", " ", "a b", "é", "a\0", &"x".repeat(256)] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert!(read(&"x".repeat(255)).is_some());
    }

    proptest! {
        #[test]
        fn the_id_of_a_pair_is_in_the_millisecond_of_its_time(micros in 0..4_000_000_000_000_000_i64, text in "[!-~]{1,40}") {
            if let Some(Name::Undated(name)) = read(&text) {
                let id = name.at(at(micros)).unwrap();
                prop_assert_eq!(millis(id), micros / 1_000);
                prop_assert_eq!(id.get_version_num(), 8);
                let (least, most) = range(micros / 1_000, micros / 1_000);
                prop_assert!(least <= id && id <= most);
            }
        }
    }
}
