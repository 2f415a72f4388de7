//! Assets: what is counted, and in how small parts. Kind `ledger.asset`.

use std::borrow::Cow;
use std::fmt;

use counterfoil_intent::{Books, Context, Fields, Invalid, Kind, Kinds, Mode, Needs, Outcome, Refs, Refusal, Reply};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::amount::MAX_SCALE;
use crate::codes;
use crate::store::Assets;

/// The code of an asset: 1 to 32 of `A-Z a-z 0-9 _ . -`. Kept in place, since every balance has one
/// and is copied when it changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssetCode {
    /// Padded with zeros, so that the order is that of the texts.
    bytes: [u8; Self::MAX_LEN],
}

impl AssetCode {
    pub const MAX_LEN: usize = 32;

    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if text.is_empty() || text.len() > Self::MAX_LEN || !text.bytes().all(good) {
            return None;
        }
        let mut bytes = [0; Self::MAX_LEN];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Some(Self { bytes })
    }

    /// Reads the code of a body.
    pub(crate) fn parse(text: &str, field: &str) -> Result<Self, Invalid> {
        Self::new(text).ok_or_else(|| {
            Invalid::new(
                codes::ASSET_CODE_INVALID,
                field,
                "the code of an asset is 1 to 32 of the letters A to Z and a to z, digits, _ . and -",
            )
        })
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|b| *b == 0).unwrap_or(Self::MAX_LEN);
        std::str::from_utf8(&self.bytes[..len]).expect("a code is ASCII")
    }
}

impl fmt::Display for AssetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for AssetCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// The row of an asset. It never changes.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    pub scale: u8,
    pub recorded_at: Timestamp,
}

/// `ledger.asset`: makes an asset known.
#[derive(Debug)]
pub struct NewAsset;

#[derive(Debug, Clone)]
pub struct NewAssetBody {
    pub code: AssetCode,
    pub scale: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Json<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
    scale: i64,
}

impl Kind for NewAsset {
    const NAME: &'static str = "ledger.asset";
    type Body = NewAssetBody;

    fn parse(raw: &RawValue) -> Result<Self::Body, Invalid> {
        let json: Json<'_> = Kinds::read_object(raw)?;
        let code = AssetCode::parse(&json.code, "code")?;
        let scale = u8::try_from(json.scale)
            .ok()
            .filter(|scale| *scale <= MAX_SCALE)
            .ok_or_else(|| {
                Invalid::new(
                    codes::SCALE_OUT_OF_RANGE,
                    "scale",
                    "the scale of an asset is 0 to 18 decimals",
                )
            })?;
        Ok(NewAssetBody { code, scale })
    }

    fn fields(body: &Self::Body, fields: &mut Fields) {
        fields.field("code", body.code.as_str().as_bytes());
        fields.field("scale", &[body.scale]);
    }

    fn needs(body: &Self::Body, _: &Refs, needs: &mut Needs<'_>) {
        needs.row::<Assets>(&body.code, Mode::Make);
    }

    fn apply(books: &mut Books, body: &Self::Body, _: &Refs, context: &mut Context) -> Outcome {
        if let Some(asset) = books.get::<Assets>(&body.code) {
            let message = format!(
                "the asset {} is there already, with {} decimals",
                body.code, asset.scale
            );
            return Refusal::new(codes::ASSET_EXISTS, "code", message).into();
        }
        books.create::<Assets>(
            body.code,
            Asset {
                scale: body.scale,
                recorded_at: context.now(),
            },
        );
        Outcome::Accepted(Reply::new().text("asset", body.code.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn other_characters_and_lengths_are_refused() {
        for text in ["", "a b", "é", "a/b", "a\0", &"x".repeat(33)] {
            assert_eq!(AssetCode::new(text), None, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn codes_keep_their_text_and_order(a in "[A-Za-z0-9_.-]{1,32}", b in "[A-Za-z0-9_.-]{1,32}") {
            let (x, y) = (AssetCode::new(&a).unwrap(), AssetCode::new(&b).unwrap());
            prop_assert_eq!(x.as_str(), &a);
            prop_assert_eq!(x.cmp(&y), a.as_bytes().cmp(b.as_bytes()));
        }
    }
}
