//! The only caller of SQL: the tables that lanes write, and what can be asked.

mod accounts;
mod assets;
mod balances;
pub mod check;
mod holds;
pub mod read;
mod sources;
mod transfers;

use counterfoil_pg::{Error, Row, Sql, TenantId, Tx, Whole, statements};

pub use accounts::Accounts;
pub use assets::Assets;
pub use balances::Balances;
pub use holds::{HoldAccount, Holds};
pub use sources::Sources;
pub use transfers::{Entries, TransferAccounts, Transfers};

statements! {
    ASSET_MAKE = "asset_make" (INT8_ARRAY, TEXT_ARRAY);
    ASSET_LOCK = "asset_lock" (INT8_ARRAY, TEXT_ARRAY);
    ASSET_LOCK_SKIP = "asset_lock_skip" (INT8_ARRAY, TEXT_ARRAY);
    ASSET_LOAD = "asset_load" (INT8_ARRAY, TEXT_ARRAY);
    ASSET_FILL = "asset_fill" (INT8_ARRAY, TEXT_ARRAY, INT2_ARRAY, TIMESTAMPTZ_ARRAY);
    ASSET_UNMAKE = "asset_unmake" (INT8_ARRAY, TEXT_ARRAY);
    ACCOUNT_INSERT = "account_insert" (
        INT8_ARRAY, UUID_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TEXT_ARRAY, TIMESTAMPTZ_ARRAY,
    );
    BALANCE_MAKE = "balance_make" (INT8_ARRAY, UUID_ARRAY);
    BALANCE_LOCK = "balance_lock" (INT8_ARRAY, UUID_ARRAY);
    BALANCE_LOCK_SKIP = "balance_lock_skip" (INT8_ARRAY, UUID_ARRAY);
    BALANCE_LOAD = "balance_load" (INT8_ARRAY, UUID_ARRAY, TIMESTAMPTZ);
    BALANCE_CONFIRM = "balance_confirm" (INT8_ARRAY, UUID_ARRAY, INT8_ARRAY);
    BALANCE_POST = "balance_post" (INT8_ARRAY, UUID_ARRAY, NUMERIC_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY);
    BALANCE_UPDATE = "balance_update" (
        INT8_ARRAY, UUID_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY,
        TIMESTAMPTZ_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY, INT8_ARRAY,
    );
    BALANCE_FILL = "balance_fill" (
        INT8_ARRAY, UUID_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY,
        TIMESTAMPTZ_ARRAY, INT8_ARRAY, TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY, TEXT_ARRAY, INT2_ARRAY,
    );
    BALANCE_UNMAKE = "balance_unmake" (INT8_ARRAY, UUID_ARRAY);
    ENTRY_INSERT = "entry_insert" (
        INT8_ARRAY, UUID_ARRAY, INT8_ARRAY, UUID_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY,
        TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY,
    );
    TRANSFER_LOCK = "transfer_lock" (INT8_ARRAY, UUID_ARRAY);
    TRANSFER_LOCK_SKIP = "transfer_lock_skip" (INT8_ARRAY, UUID_ARRAY);
    TRANSFER_LOAD = "transfer_load" (INT8_ARRAY, UUID_ARRAY);
    TRANSFER_ACCOUNTS = "transfer_accounts" (INT8_ARRAY, UUID_ARRAY);
    TRANSFER_INSERT = "transfer_insert" (
        INT8_ARRAY, UUID_ARRAY, INT4_ARRAY, INT4_ARRAY, UUID_ARRAY, INT8_ARRAY, TEXT_ARRAY, TEXT_ARRAY,
        TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY, UUID_ARRAY, UUID_ARRAY, UUID_ARRAY,
    );
    TRANSFER_UPDATE = "transfer_update" (INT8_ARRAY, UUID_ARRAY, UUID_ARRAY);
    HOLD_LOCK = "hold_lock" (INT8_ARRAY, UUID_ARRAY);
    HOLD_LOCK_SKIP = "hold_lock_skip" (INT8_ARRAY, UUID_ARRAY);
    HOLD_LOAD = "hold_load" (INT8_ARRAY, UUID_ARRAY);
    HOLD_ACCOUNTS = "hold_accounts" (INT8_ARRAY, UUID_ARRAY);
    HOLD_INSERT = "hold_insert" (
        INT8_ARRAY, UUID_ARRAY, UUID_ARRAY, NUMERIC_ARRAY, NUMERIC_ARRAY, TEXT_ARRAY,
        TIMESTAMPTZ_ARRAY, TEXT_ARRAY, TIMESTAMPTZ_ARRAY, TIMESTAMPTZ_ARRAY,
    );
    HOLD_UPDATE = "hold_update" (INT8_ARRAY, UUID_ARRAY, NUMERIC_ARRAY, TEXT_ARRAY, TIMESTAMPTZ_ARRAY);
    SOURCE_MAKE = "source_make" (INT8_ARRAY, TEXT_ARRAY);
    SOURCE_LOCK = "source_lock" (INT8_ARRAY, TEXT_ARRAY);
    SOURCE_LOCK_SKIP = "source_lock_skip" (INT8_ARRAY, TEXT_ARRAY);
    SOURCE_LOAD = "source_load" (INT8_ARRAY, TEXT_ARRAY);
    SOURCE_FILL = "source_fill" (INT8_ARRAY, TEXT_ARRAY, UUID_ARRAY, BYTEA_ARRAY, TIMESTAMPTZ_ARRAY);
    SOURCE_UNMAKE = "source_unmake" (INT8_ARRAY, TEXT_ARRAY);
    // Asked by people (read.rs).
    ACCOUNT_GET = "account_get" (INT8, TEXT);
    ACCOUNT_LIST = "account_list" (INT8, TEXT, INT8);
    ENTRY_LIST = "entry_list" (INT8, UUID, INT8, INT8);
    ENTRY_LIST_BACK = "entry_list_back" (INT8, UUID, INT8, INT8);
    BALANCE_RECORDED = "balance_recorded" (INT8, TEXT, TIMESTAMPTZ);
    BALANCE_EFFECTIVE = "balance_effective" (INT8, TEXT, TIMESTAMPTZ);
    TRANSFER_GET = "transfer_get" (INT8, UUID);
    TRANSFER_LINES = "transfer_lines" (INT8, UUID);
    HOLD_GET = "hold_get" (INT8, UUID);
    HOLD_LIST = "hold_list" (INT8, UUID, UUID, INT8);
    HOLD_DUE = "hold_due" (INT8);
    // The checker (check.rs).
    CHECK_SUMS = "check_sums" ();
    CHECK_BALANCES = "check_balances" ();
    CHECK_ENTRIES = "check_entries" ();
    CHECK_TRANSFERS = "check_transfers" ();
    CHECK_REVERSALS = "check_reversals" ();
    CHECK_HOLDS = "check_holds" ();
    CHECK_LIMITS = "check_limits" ();
    CHECK_ACCOUNTS = "check_accounts" ();
    CHECK_SOURCES = "check_sources" ();
    CHECK_BLANKS = "check_blanks" ();
}

/// Keys as the parallel arrays that statements take.
fn arrays<'a, K, A>(keys: &'a [(TenantId, K)], column: impl Fn(&'a K) -> A) -> (Vec<i64>, Vec<A>) {
    keys.iter().map(|(tenant, key)| (tenant.0, column(key))).unzip()
}

/// Runs a statement over keys and reads back those it answers with.
async fn keys<'a, K, A: counterfoil_pg::ToSql + Sync>(
    tx: &Tx,
    sql: &'static Sql,
    keys: &'a [(TenantId, K)],
    column: impl Fn(&'a K) -> A,
    read: impl Fn(&Row) -> K,
) -> Result<Vec<(TenantId, K)>, Error> {
    let (tenants, keys) = arrays(keys, column);
    let rows = tx.query(sql, &[&tenants, &keys]).await?;
    Ok(rows.iter().map(|row| (TenantId(row.get(0)), read(row))).collect())
}

fn whole(row: &Row, column: usize) -> i128 {
    row.get::<_, Whole>(column).0
}

fn optional_whole(row: &Row, column: usize) -> Option<i128> {
    row.get::<_, Option<Whole>>(column).map(|whole| whole.0)
}

fn scale(row: &Row, column: usize) -> u8 {
    u8::try_from(row.get::<_, i16>(column)).expect("the column has a check")
}
