//! Every code this crate refuses with, in the order of `docs/reference/codes.md`.

macro_rules! codes {
    ($($name:ident = $code:literal;)+) => {
        $(pub const $name: &str = $code;)+
        /// All of them: a test holds them against the page, and provokes each.
        pub const ALL: &[&str] = &[$($code),+];
    };
}

codes! {
    // Known without the database: 400, no stub.
    TRANSFER_SHAPE = "transfer_shape";
    LEGS_COUNT = "legs_count";
    NAME_SHAPE = "name_shape";
    ID_INVALID = "id_invalid";
    ACCOUNT_CODE_INVALID = "account_code_invalid";
    ASSET_CODE_INVALID = "asset_code_invalid";
    SCALE_OUT_OF_RANGE = "scale_out_of_range";
    AMOUNT_INVALID = "amount_invalid";
    AMOUNT_TOO_LONG = "amount_too_long";
    AMOUNT_ZERO = "amount_zero";
    AMOUNT_NEGATIVE = "amount_negative";
    SAME_ACCOUNT = "same_account";
    LEGS_UNBALANCED = "legs_unbalanced";
    EXPECT_INVALID = "expect_invalid";
    LIMIT_EMPTY = "limit_empty";
    LIMITS_REVERSED = "limits_reversed";
    LIMITS_EXCLUDE_ZERO = "limits_exclude_zero";
    EXPIRY_SHAPE = "expiry_shape";
    TIME_INVALID = "time_invalid";
    TEXT_NUL = "text_nul";
    TEXT_TOO_LONG = "text_too_long";
    METADATA_TOO_LARGE = "metadata_too_large";
    METADATA_INVALID = "metadata_invalid";
    // Known from the database only: 409, with a stub.
    SOURCE_EXISTS = "source_exists";
    ASSET_EXISTS = "asset_exists";
    ASSET_UNKNOWN = "asset_unknown";
    ACCOUNT_EXISTS = "account_exists";
    HOLD_UNKNOWN = "hold_unknown";
    HOLD_CAPTURED = "hold_captured";
    HOLD_RELEASED = "hold_released";
    HOLD_EXPIRED = "hold_expired";
    HOLD_NOT_DUE = "hold_not_due";
    TRANSFER_UNKNOWN = "transfer_unknown";
    TRANSFER_IS_REVERSAL = "transfer_is_reversal";
    TRANSFER_REVERSED = "transfer_reversed";
    CAPTURE_TO_SELF = "capture_to_self";
    ACCOUNT_UNKNOWN = "account_unknown";
    ACCOUNT_CLOSED = "account_closed";
    VERSION_CONFLICT = "version_conflict";
    ASSET_MISMATCH = "asset_mismatch";
    AMOUNT_TOO_FINE = "amount_too_fine";
    AMOUNT_TOO_LARGE = "amount_too_large";
    ASSET_UNBALANCED = "asset_unbalanced";
    CAPTURE_TOO_LARGE = "capture_too_large";
    EXPIRY_PASSED = "expiry_passed";
    ACCOUNT_NOT_EMPTY = "account_not_empty";
    ACCOUNT_HAS_HOLDS = "account_has_holds";
    LIMIT_VIOLATED = "limit_violated";
    BALANCE_OVERFLOW = "balance_overflow";
    FLOOR_CROSSED = "floor_crossed";
    CEILING_CROSSED = "ceiling_crossed";
}

// What a row of an import can be wrong in, besides all of that. Only in error files.
pub const ROW_INVALID: &str = "row_invalid";
pub const ROWS_DIFFER: &str = "rows_differ";
pub const DATE_INVALID: &str = "date_invalid";
/// See [`ROW_INVALID`].
pub const OF_ROWS: &[&str] = &[ROW_INVALID, ROWS_DIFFER, DATE_INVALID];
