//! Who is asking: on every request, so mostly without the database.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use counterfoil_pg::{Database, Role, Scope, TenantId};

use crate::cache::Cache;
use crate::key::{ApiKey, Caller, Hash};
use crate::{Unavailable, store};

/// How long an answer of the database is believed: a key that has been revoked stops within this
/// time in every server, and one that has just been made is known within it.
pub const TTL: Duration = Duration::from_secs(2);

/// How many keys, how many strings that are none, and how many tenants are remembered.
const REMEMBERED: usize = 20_000;

/// Checks keys, as the role `counterfoil_ops`. Cheap to clone.
#[derive(Clone)]
pub struct Authenticator(Arc<Inner>);

struct Inner {
    db: Database,
    callers: Cache<Hash, Caller>,
    tenants: Cache<TenantId, ()>,
}

impl Authenticator {
    #[must_use]
    pub fn new(db: Database) -> Self {
        Self(Arc::new(Inner {
            db,
            callers: Cache::new(TTL, REMEMBERED),
            tenants: Cache::new(TTL, REMEMBERED),
        }))
    }

    /// Whom this token speaks for; `None`: nobody, or no longer.
    ///
    /// # Errors
    /// If the database cannot be asked: never because of the token.
    pub async fn check(&self, token: &str) -> Result<Option<Caller>, Unavailable> {
        let Some(key) = ApiKey::parse(token) else {
            return Ok(None);
        };
        // Found by its hash: how long that takes says nothing about any token.
        let hash = key.hash();
        let inner = &*self.0;
        let ask = || async move {
            let tx = inner.db.pool(Role::Ops).begin(&Scope::Installation).await?;
            // Nothing was written: dropping the transaction ends it without anybody waiting.
            store::find_caller(&tx, &hash).await
        };
        inner.callers.get(hash, ask).await.map_err(Unavailable)
    }

    /// Whether there is such a tenant: for operators, whose key does not prove it.
    ///
    /// # Errors
    /// If the database cannot be asked.
    pub async fn tenant_exists(&self, id: TenantId) -> Result<bool, Unavailable> {
        let inner = &*self.0;
        let ask = || async move {
            let tx = inner.db.pool(Role::Ops).begin(&Scope::Installation).await?;
            Ok(store::exists(&tx, id).await?.then_some(()))
        };
        let found = inner.tenants.get(id, ask).await.map_err(Unavailable)?;
        Ok(found.is_some())
    }
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").finish_non_exhaustive()
    }
}
