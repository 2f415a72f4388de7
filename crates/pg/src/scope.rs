//! What one transaction may see and write.

use std::fmt::{self, Write as _};

/// The isolation boundary: a store, a customer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct TenantId(pub i64);

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The tenant, or for a lane the declared set of tenants, that one transaction may see and write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One tenant: roles `counterfoil_app` and `counterfoil_report`.
    Tenant(TenantId),
    /// The tenants of a batch: role `counterfoil_lane`. Sorted, without repeats.
    Tenants(Vec<TenantId>),
    /// Work across tenants, for `counterfoil_ops` and migrations; sets nothing, so that for any
    /// other role it sees nothing.
    Installation,
}

impl Scope {
    /// The scope of a batch.
    #[must_use]
    pub fn tenants(mut ids: Vec<TenantId>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        Self::Tenants(ids)
    }

    /// The statement that sets the scope, or `None` where there is nothing to set.
    ///
    /// The one place where a value is formatted into SQL: `SET LOCAL` takes no parameters. It is
    /// formatted from integers only.
    pub(crate) fn set_local(&self) -> Option<String> {
        match self {
            Self::Tenant(id) => Some(format!("SET LOCAL counterfoil.tenant = '{}'", id.0)),
            Self::Tenants(ids) => {
                let mut text = String::with_capacity(40 + ids.len() * 8);
                text.push_str("SET LOCAL counterfoil.tenants = '{");
                for (i, id) in ids.iter().enumerate() {
                    if i > 0 {
                        text.push(',');
                    }
                    write!(text, "{}", id.0).expect("writing to a String cannot fail");
                }
                text.push_str("}'");
                Some(text)
            }
            Self::Installation => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(scope: &Scope) -> String {
        scope.set_local().expect("something to set")
    }

    #[test]
    fn a_scope_is_set_for_the_transaction_only() {
        let one = Scope::Tenant(TenantId(7));
        assert_eq!(text(&one), "SET LOCAL counterfoil.tenant = '7'");
        let edge = Scope::Tenant(TenantId(i64::MIN));
        assert_eq!(text(&edge), "SET LOCAL counterfoil.tenant = '-9223372036854775808'");
        assert_eq!(Scope::Installation.set_local(), None);
    }

    #[test]
    fn a_batch_names_each_tenant_once() {
        let ids = [3, 1, 2, 3, 1].map(TenantId).to_vec();
        assert_eq!(text(&Scope::tenants(ids)), "SET LOCAL counterfoil.tenants = '{1,2,3}'");
        assert_eq!(
            text(&Scope::tenants(Vec::new())),
            "SET LOCAL counterfoil.tenants = '{}'"
        );
    }
}
