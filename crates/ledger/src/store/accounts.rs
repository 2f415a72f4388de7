//! The facts of accounts, appended when they are opened.

use counterfoil_intent::AppendTable;
use counterfoil_pg::{Error, Scope, TenantId, Tx};

use super::ACCOUNT_INSERT;
use crate::account::Account;

#[derive(Debug)]
pub struct Accounts;

impl AppendTable for Accounts {
    type Row = Account;

    async fn insert(_: &Scope, tx: &Tx, rows: &[(TenantId, Account)]) -> Result<(), Error> {
        let tenants: Vec<_> = rows.iter().map(|(tenant, _)| tenant.0).collect();
        let ids: Vec<_> = rows.iter().map(|(_, account)| account.code.id().0).collect();
        let codes: Vec<_> = rows.iter().map(|(_, account)| account.code.as_str()).collect();
        let assets: Vec<_> = rows.iter().map(|(_, account)| account.asset.as_str()).collect();
        let metadata: Vec<_> = rows.iter().map(|(_, account)| account.metadata.as_deref()).collect();
        let times: Vec<_> = rows.iter().map(|(_, account)| account.recorded_at).collect();
        tx.execute(ACCOUNT_INSERT, &[&tenants, &ids, &codes, &assets, &metadata, &times])
            .await?;
        Ok(())
    }
}
