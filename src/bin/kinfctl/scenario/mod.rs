//! Policies offline: files of resources, a fleet and a request as files describe them, and what is decided for it.
//!
//! Invariant: it is decided by the code that the server runs; only what the server observes is given here.

mod candidates;
mod check;
mod decide;
mod fleet;
mod test_file;
mod world;

pub use candidates::Candidate;
pub use check::problems;
pub use decide::{Decision, Fate, Verdict, decide};
pub use fleet::{Fleet, WorkerState};
pub use test_file::{Asked, Case, Names, Setting, TestFile, Then, read_tests};
pub use world::World;

#[cfg(test)]
mod tests;
