//! Assets in books.

use counterfoil_intent::{Changes, LockClass, Table, Wait};
use counterfoil_pg::{Error, Row, Scope, TenantId, Tx};
use jiff::Timestamp;

use super::{ASSET_FILL, ASSET_LOAD, ASSET_LOCK, ASSET_LOCK_SKIP, ASSET_MAKE, ASSET_UNMAKE, arrays};
use crate::asset::{Asset, AssetCode};

#[derive(Debug)]
pub struct Assets;

fn code(row: &Row, column: usize) -> AssetCode {
    AssetCode::new(row.get(column)).expect("an asset's code was checked before it was stored")
}

impl Table for Assets {
    const CLASS: LockClass = LockClass::Asset;
    const NAME: &'static str = "ledger_asset";
    type Key = AssetCode;
    type Row = Asset;

    async fn make(_: &Scope, tx: &Tx, keys: &[(TenantId, AssetCode)]) -> Result<Vec<(TenantId, AssetCode)>, Error> {
        super::keys(tx, ASSET_MAKE, keys, AssetCode::as_str, |row| code(row, 1)).await
    }

    async fn lock(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, AssetCode)],
        wait: Wait,
    ) -> Result<Vec<(TenantId, AssetCode)>, Error> {
        let sql = match wait {
            Wait::Skip => ASSET_LOCK_SKIP,
            Wait::Queue => ASSET_LOCK,
        };
        super::keys(tx, sql, keys, AssetCode::as_str, |row| code(row, 1)).await
    }

    async fn load(
        _: &Scope,
        tx: &Tx,
        keys: &[(TenantId, AssetCode)],
        _: Timestamp,
    ) -> Result<Vec<(TenantId, AssetCode, Asset)>, Error> {
        let (tenants, codes) = arrays(keys, AssetCode::as_str);
        let rows = tx.query(ASSET_LOAD, &[&tenants, &codes]).await?;
        let asset = |row: &Row| Asset {
            scale: super::scale(row, 2),
            recorded_at: row.get(3),
        };
        Ok(rows
            .iter()
            .map(|row| (TenantId(row.get(0)), code(row, 1), asset(row)))
            .collect())
    }

    async fn save(_: &Scope, tx: &Tx, changes: &Changes<'_, Self>) -> Result<(), Error> {
        assert!(
            changes.update.is_empty() && changes.insert.is_empty(),
            "an asset is made, and never changes"
        );
        if !changes.fill.is_empty() {
            let tenants: Vec<_> = changes.fill.iter().map(|(tenant, ..)| tenant.0).collect();
            let codes: Vec<_> = changes.fill.iter().map(|(_, code, _)| code.as_str()).collect();
            let scales: Vec<_> = changes.fill.iter().map(|(.., asset)| i16::from(asset.scale)).collect();
            let times: Vec<_> = changes.fill.iter().map(|(.., asset)| asset.recorded_at).collect();
            tx.execute(ASSET_FILL, &[&tenants, &codes, &scales, &times]).await?;
        }
        if !changes.unmake.is_empty() {
            let tenants: Vec<_> = changes.unmake.iter().map(|(tenant, _)| tenant.0).collect();
            let codes: Vec<_> = changes.unmake.iter().map(|(_, code)| code.as_str()).collect();
            tx.execute(ASSET_UNMAKE, &[&tenants, &codes]).await?;
        }
        Ok(())
    }
}
