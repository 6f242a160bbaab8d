//! Who the workers are and what state each is in.
//!
//! Invariant: one writer (discovery) changes membership; every other room reads snapshots. A worker that
//! leaves and comes back is a new [`Member`] with a new generation: nothing of the old one sticks to it.

mod member;
mod readiness;
mod registry;
mod status;
mod worker;

pub use member::{Member, Served};
pub use readiness::{Besides, Readiness, readiness};
pub use registry::{Described, FleetEvent, IdTaken, Registry, Snapshot, diff};
pub use status::{FAILURES_TO_FAIL, Heard, KvState, MISSED_POLLS_TO_FAIL, ModelCard, Status, Turn};
pub use worker::{Availability, KvSockets, KvSource, Worker, WorkerSet};

#[cfg(test)]
mod tests;
