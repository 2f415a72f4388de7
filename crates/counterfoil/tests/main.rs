//! The program as a whole: what it says, what its documents say of it, and the rules of the house.

mod help;
mod readme;
mod running;
mod sql;
mod tidy;
