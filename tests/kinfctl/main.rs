//! `kinfctl` from outside: what it prints, where, and its exit code.
//!
//! What it prints is held to files in `snapshots/`: `KINFERENCE_TEST_WRITE_SNAPSHOTS=1 cargo nextest run --test kinfctl` renews them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod admin;
mod config;
mod decisions;
mod help;
mod policies;
mod run;
#[expect(dead_code, reason = "shared with the admin listener's tests, which use more of it")]
#[path = "../admin/site.rs"]
mod site;
mod terminal;
mod workers;
