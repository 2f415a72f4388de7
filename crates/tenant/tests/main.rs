//! Stories of tenants and keys.

// A test looks from outside as well, as the administrator.
#![allow(clippy::disallowed_methods)]

mod keys;
mod tenants;
mod walls;
