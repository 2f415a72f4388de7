//! Who the tenants are, and who is asking.
//!
//! **Owns** tenants with their settings (zone, collation, rounding), API keys, and the check of a
//! key on every request.
//!
//! **Invariants.** A token is shown once and never stored or logged: the database has its SHA-256.
//! A key that has been revoked stops within [`TTL`], in every server. Only `counterfoil_ops` reads
//! keys; a tenant sees its own row of `tenant` and no other.
//!
//! **Must not know** HTTP, or what a tenant's rows mean.

mod authenticator;
mod cache;
mod error;
mod key;
mod store;
mod tenant;

pub use authenticator::{Authenticator, TTL};
pub use error::{Invalid, Unavailable};
pub use key::{ApiKey, Caller, KeyInfo, Label};
pub use store::ALL as STATEMENTS;
pub use store::{Created, create, create_key, create_once, get, list, list_keys, revoke_key};
pub use tenant::{NewTenant, Rounding, Tenant};

/// Migrations of this crate, in order.
pub const MIGRATIONS: &[(&str, &str)] = &[
    ("tenant/0001_tenant", include_str!("../migrations/0001_tenant.sql")),
    ("tenant/0002_source", include_str!("../migrations/0002_source.sql")),
];
