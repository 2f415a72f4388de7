//! The only caller of this crate's SQL.

use counterfoil_pg::{Error, Row, Scope, TenantId, Tx};

use crate::Invalid;
use crate::key::{ApiKey, Caller, Hash, KeyInfo, Label};
use crate::tenant::{NewTenant, Tenant};

counterfoil_pg::statements! {
    TENANT_INSERT = "tenant_insert" (TEXT, TEXT, TEXT, TEXT);
    TENANT_GET = "tenant_get" (INT8);
    TENANT_LIST = "tenant_list" (INT8, INT8);
    TENANT_OF_SOURCE = "tenant_of_source" (TEXT);
    TENANT_SOURCE_INSERT = "tenant_source_insert" (TEXT, INT8);
    COLLATION_KNOWN = "collation_known" (TEXT);
    API_KEY_INSERT = "api_key_insert" (BYTEA, TEXT, INT8, TEXT);
    API_KEY_LIST = "api_key_list" (INT8, INT8, INT8);
    API_KEY_REVOKE = "api_key_revoke" (INT8);
    API_KEY_FIND = "api_key_find" (BYTEA);
}

/// Makes a tenant. The scope is `Installation`, the role `counterfoil_ops`.
///
/// The inner error is an answer to the caller, the outer one a failure of the transaction.
pub async fn create(scope: &Scope, tx: &Tx, new: &NewTenant) -> Result<Result<Tenant, Invalid>, Error> {
    across_tenants(scope);
    let known: bool = tx
        .query_one(COLLATION_KNOWN, &[&new.collation])
        .await?
        .try_get("known")?;
    if !known {
        return Ok(Err(NewTenant::no_such_collation(&new.collation)));
    }
    let values: &[&(dyn counterfoil_pg::ToSql + Sync)] =
        &[&new.name, &new.zone, &new.collation, &new.rounding.as_str()];
    tenant(&tx.query_one(TENANT_INSERT, values).await?).map(Ok)
}

/// What became of the wish for a tenant under a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    First(Tenant),
    /// Made before, by the same request.
    Again(Tenant),
    /// Made before, by a request that differs in this field.
    Other {
        field: &'static str,
    },
}

/// Makes a tenant under a key, once for ever. The scope is `Installation`, the role `counterfoil_ops`.
///
/// # Errors
/// Of class `Unique` where somebody else makes one under the same key at the same time: another
/// attempt finds theirs.
pub async fn create_once(
    scope: &Scope,
    tx: &Tx,
    key: &str,
    new: &NewTenant,
) -> Result<Result<Created, Invalid>, Error> {
    across_tenants(scope);
    if let Some(row) = tx.query_opt(TENANT_OF_SOURCE, &[&key]).await? {
        let found = tenant(&row)?;
        return Ok(Ok(match new.differs_from(&found) {
            None => Created::Again(found),
            Some(field) => Created::Other { field },
        }));
    }
    let made = match create(scope, tx, new).await? {
        Ok(made) => made,
        Err(invalid) => return Ok(Err(invalid)),
    };
    tx.execute(TENANT_SOURCE_INSERT, &[&key, &made.id.0]).await?;
    Ok(Ok(Created::First(made)))
}

/// A tenant and its settings; `None` where the scope does not reach, too.
pub async fn get(_scope: &Scope, tx: &Tx, id: TenantId) -> Result<Option<Tenant>, Error> {
    tx.query_opt(TENANT_GET, &[&id.0])
        .await?
        .as_ref()
        .map(tenant)
        .transpose()
}

/// Tenants by id, those after `after`, at most `limit`.
pub async fn list(scope: &Scope, tx: &Tx, after: Option<TenantId>, limit: u16) -> Result<Vec<Tenant>, Error> {
    across_tenants(scope);
    let after = after.map_or(i64::MIN, |id| id.0);
    tx.query(TENANT_LIST, &[&after, &i64::from(limit)])
        .await?
        .iter()
        .map(tenant)
        .collect()
}

/// Stores a key for whom it speaks; `None`: there is no such tenant.
pub async fn create_key(
    scope: &Scope,
    tx: &Tx,
    key: &ApiKey,
    caller: Caller,
    label: &Label,
) -> Result<Option<KeyInfo>, Error> {
    across_tenants(scope);
    if let Caller::Tenant(id) = caller
        && !exists(tx, id).await?
    {
        return Ok(None);
    }
    let values: &[&(dyn counterfoil_pg::ToSql + Sync)] = &[&&key.hash()[..], &key.prefix(), &caller.holder(), &label.0];
    key_info(&tx.query_one(API_KEY_INSERT, values).await?).map(Some)
}

/// Keys of one caller by id, those after `after`, at most `limit`; revoked ones as well.
pub async fn list_keys(
    scope: &Scope,
    tx: &Tx,
    caller: Caller,
    after: Option<i64>,
    limit: u16,
) -> Result<Vec<KeyInfo>, Error> {
    across_tenants(scope);
    let after = after.unwrap_or(i64::MIN);
    let rows = tx
        .query(API_KEY_LIST, &[&caller.holder(), &after, &i64::from(limit)])
        .await?;
    rows.iter().map(key_info).collect()
}

/// Ends a key; `None`: there is none of this id. Doing it twice changes nothing.
pub async fn revoke_key(scope: &Scope, tx: &Tx, id: i64) -> Result<Option<KeyInfo>, Error> {
    across_tenants(scope);
    tx.query_opt(API_KEY_REVOKE, &[&id])
        .await?
        .as_ref()
        .map(key_info)
        .transpose()
}

pub(crate) async fn find_caller(tx: &Tx, hash: &Hash) -> Result<Option<Caller>, Error> {
    let row = tx.query_opt(API_KEY_FIND, &[&&hash[..]]).await?;
    Ok(row
        .map(|row| row.try_get("holder").map(Caller::from_holder))
        .transpose()?)
}

pub(crate) async fn exists(tx: &Tx, id: TenantId) -> Result<bool, Error> {
    Ok(tx.query_opt(TENANT_GET, &[&id.0]).await?.is_some())
}

/// These reach across tenants, and their caller says so.
fn across_tenants(scope: &Scope) {
    assert_eq!(
        *scope,
        Scope::Installation,
        "the scope of work across tenants is the installation"
    );
}

fn tenant(row: &Row) -> Result<Tenant, Error> {
    let rounding: String = row.try_get("rounding")?;
    Ok(Tenant {
        id: TenantId(row.try_get("tenant_id")?),
        name: row.try_get("name")?,
        zone: row.try_get("zone")?,
        collation: row.try_get("collation_name")?,
        rounding: rounding.parse().expect("a CHECK of the table names the same roundings"),
        created_at: row.try_get("created_at")?,
    })
}

fn key_info(row: &Row) -> Result<KeyInfo, Error> {
    Ok(KeyInfo {
        id: row.try_get("api_key_id")?,
        prefix: row.try_get("prefix")?,
        tenant: row.try_get::<_, Option<i64>>("holder")?.map(TenantId),
        label: row.try_get("label")?,
        created_at: row.try_get("created_at")?,
        revoked_at: row.try_get("revoked_at")?,
    })
}
