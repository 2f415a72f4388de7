//! Accounts: their ids, their balances, and what a balance may become.

use std::fmt;

use counterfoil_intent::Invalid;
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::asset::AssetCode;
use crate::codes;

/// The longest code of an account, in bytes.
pub const MAX_CODE_LEN: usize = 255;

/// The id of an account: made from its code, so that an intent knows its rows without a look-up.
///
/// A UUIDv8 of the SHA-256 of a prefix of our own and the code: 122 bits, so that two codes of one
/// id are not found even by looking for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub Uuid);

impl AccountId {
    #[must_use]
    pub fn of(code: &str) -> Self {
        let digest = Sha256::new()
            .chain_update(b"counterfoil.ledger.account\0")
            .chain_update(code)
            .finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }
}

/// The code of an account: 1 to 255 bytes of UTF-8 without control characters, and without white
/// space at either end. Compared byte by byte: no case or form of Unicode is folded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountCode {
    text: Box<str>,
    id: AccountId,
}

impl AccountCode {
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        // The list of accounts counts on it that nothing sorts between a code and that code with more
        // behind it but what begins with a control character.
        let good = (1..=MAX_CODE_LEN).contains(&text.len()) && !text.contains(char::is_control) && text.trim() == text;
        good.then(|| Self {
            text: text.into(),
            id: AccountId::of(text),
        })
    }

    /// Reads the code of a body.
    pub(crate) fn parse(text: &str, field: &str) -> Result<Self, Invalid> {
        Self::new(text).ok_or_else(|| {
            Invalid::new(
                codes::ACCOUNT_CODE_INVALID,
                field,
                "the code of an account is 1 to 255 bytes long, without control characters and without spaces at either end",
            )
        })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    #[must_use]
    pub fn id(&self) -> AccountId {
        self.id
    }
}

impl fmt::Display for AccountCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The facts of an account that never change, appended when it is opened.
#[derive(Debug, Clone)]
pub struct Account {
    pub code: AccountCode,
    pub asset: AssetCode,
    pub metadata: Option<Box<str>>,
    pub recorded_at: Timestamp,
}

/// The hot row of an account: all numbers in the asset's smallest unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Balance {
    pub asset: AssetCode,
    pub scale: u8,
    pub posted: i128,
    /// All active holds, also those that have expired and that no worker has seen yet.
    pub held: i128,
    /// The part of `held` whose time had passed as of `as_of`; it holds nothing back any more.
    pub expired: i128,
    pub floor: Option<i128>,
    pub ceiling: Option<i128>,
    pub closed_at: Option<Timestamp>,
    /// Goes up by one with every entry and every other change. Opening is version 1.
    pub version: i64,
    /// Not later than the earliest expiry among the active holds, as it was stored.
    pub next_expiry: Option<Timestamp>,
    /// Not later than the earliest expiry after `as_of`.
    pub following: Option<Timestamp>,
    pub changed_at: Timestamp,
    /// The moment for which `expired` was counted: the database's clock after locking, but not
    /// before `changed_at`. A clock that steps back must not bring a hold back to life whose money
    /// has been spent.
    pub as_of: Timestamp,
}

impl Balance {
    /// An account as it is opened.
    #[must_use]
    pub fn open(asset: AssetCode, scale: u8, floor: Option<i128>, ceiling: Option<i128>, now: Timestamp) -> Self {
        Self {
            asset,
            scale,
            posted: 0,
            held: 0,
            expired: 0,
            floor,
            ceiling,
            closed_at: None,
            version: 1,
            next_expiry: None,
            following: None,
            changed_at: now,
            as_of: now,
        }
    }

    /// The holds that hold something back.
    #[must_use]
    pub fn live(&self) -> i128 {
        self.held - self.expired
    }

    /// What can still go out, before the floor is looked at.
    #[must_use]
    pub fn available(&self) -> i128 {
        self.posted - self.live()
    }

    /// Whether the floor lies above what is available.
    #[must_use]
    pub fn is_under_floor(&self) -> bool {
        self.floor.is_some_and(|floor| self.available() < floor)
    }

    /// Whether what is posted lies above the ceiling.
    #[must_use]
    pub fn is_over_ceiling(&self) -> bool {
        self.ceiling.is_some_and(|ceiling| self.posted > ceiling)
    }

    /// Whether a hold of that expiry is counted in `expired`, and holds nothing back any more.
    #[must_use]
    pub fn is_past(&self, expires_at: Option<Timestamp>) -> bool {
        expires_at.is_some_and(|expires_at| expires_at <= self.as_of)
    }

    /// What the column `next_expiry` has to say: it must not be later than any active hold's expiry.
    #[must_use]
    pub fn stored_expiry(&self) -> Option<Timestamp> {
        // While a hold that has expired waits for the worker, the old bound makes every load look.
        if self.expired > 0 {
            self.next_expiry
        } else {
            self.following
        }
    }

    /// The account as loading it at `now` would give it, after it has been stored. `None` where a hold
    /// has expired since: only the holds themselves tell how much that was.
    #[must_use]
    pub fn carried(&self, now: Timestamp) -> Option<Self> {
        let as_of = self.as_of.max(self.changed_at).max(now);
        if self.following.is_some_and(|next| next <= as_of) {
            return None;
        }
        Some(Self {
            next_expiry: self.stored_expiry(),
            as_of,
            ..*self
        })
    }

    /// Counts a hold that has been placed.
    pub(crate) fn expect_expiry(&mut self, expires_at: Option<Timestamp>) {
        if let Some(expires_at) = expires_at {
            self.following = Some(self.following.map_or(expires_at, |known| known.min(expires_at)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_code_never_changes() {
        // Stored in every database there is: a change here orphans every account.
        assert_eq!(
            AccountId::of("cash").0.to_string(),
            "a8d88405-bd82-8837-b56e-24d1c56964b6"
        );
        assert_eq!(AccountId::of("cash").0.get_version_num(), 8);
        assert_ne!(AccountId::of("cash"), AccountId::of("Cash"));
    }

    #[test]
    fn codes_that_print_badly_are_refused() {
        for text in ["", " a", "a ", "a\0", "a\nb", "\u{a0}a", &"x".repeat(256), "\u{85}"] {
            assert_eq!(AccountCode::new(text), None, "{text:?}");
        }
        for text in [
            "a",
            "Assets:US:BofA:Checking",
            "två ord",
            "口座",
            "\u{10ffff}",
            &"x".repeat(255),
        ] {
            assert!(AccountCode::new(text).is_some(), "{text:?}");
        }
    }
}
