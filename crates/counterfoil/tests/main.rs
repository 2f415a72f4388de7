//! The program as a whole: what it says, what its documents say of it, and the rules of the house;
//! and the stories of real server processes under bad input and faults. A story of a numbered case
//! bears its number.

mod help;
mod readme;
mod running;
mod sql;
mod tidy;

mod client;
mod harness;

mod bad_input;
mod bench;
mod check;
mod could_not_run;
mod counts;
mod crowds;
mod edge;
mod embedded;
mod folders;
mod journal;
mod kills;
mod log;
mod once;
mod pooler;
mod settings;
mod shutdown;
mod tls;
mod walls;
