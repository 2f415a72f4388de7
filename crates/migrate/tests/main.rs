//! Stories of init and of migrations.

mod init;
mod managed;
mod migrations;
