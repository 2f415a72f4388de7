//! Stories of events, on real servers.

#![allow(
    clippy::disallowed_methods,
    reason = "the administrator looks at what the product wrote"
)]

mod days;
mod house;
mod ingest;
mod reports;
