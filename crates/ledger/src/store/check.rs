//! The checker of promise 4: what no interruption may ever break.
//!
//! Each rule is one statement over all tenants, each consistent in itself, so that it can run while
//! lanes write. They read whole tables: for tests, for `counterfoil check`, not for a timer.

use std::fmt;

use counterfoil_pg::{Error, Scope, Sql, TenantId, Tx};

use super::{
    CHECK_ACCOUNTS, CHECK_BALANCES, CHECK_BLANKS, CHECK_ENTRIES, CHECK_HOLDS, CHECK_LIMITS, CHECK_REVERSALS,
    CHECK_SOURCES, CHECK_SUMS, CHECK_TRANSFERS,
};

/// Something that cannot be, and is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The name of the statement that found it, which says what should hold.
    pub rule: &'static str,
    pub tenant: TenantId,
    /// The transfer, account, hold or source.
    pub subject: String,
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: tenant {}, {}: {}",
            self.rule, self.tenant, self.subject, self.detail
        )
    }
}

/// What is checked, in order.
pub const RULES: [&Sql; 10] = [
    CHECK_SUMS,
    CHECK_BALANCES,
    CHECK_ENTRIES,
    CHECK_TRANSFERS,
    CHECK_REVERSALS,
    CHECK_HOLDS,
    CHECK_LIMITS,
    CHECK_ACCOUNTS,
    CHECK_SOURCES,
    CHECK_BLANKS,
];

/// The violations there are, at most a hundred of each rule. As `counterfoil_ops`, with
/// [`Scope::Installation`].
pub async fn check(scope: &Scope, tx: &Tx) -> Result<Vec<Violation>, Error> {
    let mut found = Vec::new();
    for rule in RULES {
        found.extend(check_rule(scope, tx, rule).await?);
    }
    Ok(found)
}

/// The violations of one of [`RULES`], likewise.
pub async fn check_rule(_: &Scope, tx: &Tx, rule: &'static Sql) -> Result<Vec<Violation>, Error> {
    let violation = |row: &counterfoil_pg::Row| Violation {
        rule: rule.name,
        tenant: TenantId(row.get(0)),
        subject: row.get(1),
        detail: row.get(2),
    };
    Ok(tx.query(rule, &[]).await?.iter().map(violation).collect())
}
