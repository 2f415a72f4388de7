//! Stories of the ledger. All in one binary: every test binary links everything once more.
//!
//! Those of `codes`, `model` and `pure` need no database; the others do.

mod ahead;
mod cases;
mod checker;
mod codes;
mod database;
mod expiry;
mod imports;
mod lanes;
mod model;
mod naive;
mod pure;
mod reads;
mod world;
