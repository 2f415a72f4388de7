//! Stories of the ledger. All in one binary: every test binary links everything once more.

mod codes;
mod model;
mod stories;
mod world;
