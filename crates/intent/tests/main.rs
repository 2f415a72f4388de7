//! Stories of intents and lanes against real PostgreSQL; run by `scripts/with-servers cargo test`.

mod add_a_kind;
mod faults;
mod faulty_kinds;
mod harness;
mod locks;
mod once;
mod poison;
mod rotation;
