//! Stories of intents and lanes against real PostgreSQL; run by `scripts/with-servers cargo test`.

#![allow(
    clippy::disallowed_methods,
    reason = "the superuser looks from outside, and gets in the way"
)]

mod add_a_kind;
mod faults;
mod faulty_kinds;
mod harness;
mod locks;
mod once;
mod order;
mod patience;
mod poison;
mod rotation;
mod unknown;
