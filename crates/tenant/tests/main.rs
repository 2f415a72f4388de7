//! Stories of tenants and keys.

mod keys;
mod tenants;
mod walls;
