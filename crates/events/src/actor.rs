//! Who did it, without who it was.

use counterfoil_pg::{Database, Error, Role, Scope, TenantId};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::store;

/// Hashes actors: HMAC-SHA-256 over tenant and actor, of which 64 bits are kept. Without the key, which
/// only the role that hashes may read, an address cannot be found by trying all there are. The same actor
/// of two tenants has two hashes.
#[derive(Clone)]
pub struct Actors {
    keyed: Hmac<Sha256>,
}

impl Actors {
    /// Reads the key of the installation.
    ///
    /// # Errors
    /// If the database cannot be asked.
    pub async fn load(database: &Database) -> Result<Self, Error> {
        let scope = Scope::Installation;
        let tx = database.pool(Role::Ops).begin(&scope).await?;
        let key = store::actor_key(&scope, &tx).await?;
        tx.rollback().await;
        Ok(Self::new(&key))
    }

    /// With a key that is known already.
    ///
    /// # Panics
    /// Never: HMAC takes a key of any length.
    #[must_use]
    pub fn new(key: &[u8]) -> Self {
        Self {
            keyed: Hmac::new_from_slice(key).expect("HMAC takes a key of any length"),
        }
    }

    /// Two people of ten million have the same hash with a probability of 1 in 370,000 (n² / 2⁶⁵).
    #[must_use]
    pub fn hash(&self, tenant: TenantId, actor: &str) -> i64 {
        let mut mac = self.keyed.clone();
        mac.update(&tenant.0.to_be_bytes());
        mac.update(actor.as_bytes());
        let bytes = mac.finalize().into_bytes();
        i64::from_be_bytes(bytes[..8].try_into().expect("a hash has 32 bytes"))
    }
}

impl std::fmt::Debug for Actors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Actors")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_actor_has_one_hash_in_a_tenant_and_another_under_another_tenant_or_key() {
        let (one, two) = (Actors::new(&[1; 32]), Actors::new(&[2; 32]));
        let hash = one.hash(TenantId(1), "203.0.113.9");
        assert_eq!(one.hash(TenantId(1), "203.0.113.9"), hash);
        assert_ne!(one.hash(TenantId(2), "203.0.113.9"), hash);
        assert_ne!(two.hash(TenantId(1), "203.0.113.9"), hash);
        assert_ne!(one.hash(TenantId(1), "203.0.113.8"), hash);
    }
}
