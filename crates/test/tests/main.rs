//! Stories of the ground that other tests stand on.

// A test looks from outside as well, as the administrator.
#![allow(clippy::disallowed_methods)]

mod cluster;
mod database;
mod proxy;
mod rows;
