//! Stories of events, on real servers.

mod days;
mod house;
mod ingest;
mod reports;
