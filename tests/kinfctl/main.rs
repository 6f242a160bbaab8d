//! `kinfctl` from outside: what it prints, where, and its exit code.
//!
//! What it prints is held to files in `snapshots/`: `KINFERENCE_TEST_WRITE_SNAPSHOTS=1 cargo nextest run --test kinfctl` renews them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod config;
mod help;
mod policies;
mod run;
mod terminal;
mod workers;
