//! Stories of init and of migrations.

// A test looks from outside as well, as the administrator.
#![allow(clippy::disallowed_methods)]

mod init;
mod managed;
mod migrations;
