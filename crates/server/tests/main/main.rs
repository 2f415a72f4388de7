//! The server without a database: behind it stands an engine that keeps what it is given and
//! answers `busy`. What intents do is told by the tests of the binary.

mod doors;
mod engine;
mod events;
mod hygiene;
mod ledger;
mod openapi;
mod reads;
mod schema;
mod wire;
mod writes;
