//! Stories of the driver. No test sleeps: steps tell the test what happens, and wait for its word.

mod failing;
mod shutdown;
mod step;
mod waking;
