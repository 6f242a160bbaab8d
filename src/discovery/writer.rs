//! The one way for discovery to change the fleet, with the log line and the counts that go with it.

use std::sync::Arc;

use prometheus::IntCounterVec;

use crate::{
    fleet::{FleetEvent, IdTaken, Registry, Worker, WorkerSet},
    observe::Metrics,
};

/// Writes worker sets into the registry. Cheap to clone.
#[derive(Clone)]
pub struct FleetWriter {
    registry: Arc<Registry>,
    changes: IntCounterVec,
}

impl FleetWriter {
    /// A writer of `registry`. Call once: it registers metrics.
    pub fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        let changes = metrics.counters(
            "kinference_fleet_changes_total",
            "Workers added and removed by discovery, and descriptions of worker sets that were refused.",
            &["change"],
        );
        Self { registry, changes }
    }

    /// Makes `workers` the members of `set`.
    ///
    /// # Errors
    /// An id that another set has; then nothing changes.
    pub fn replace(&self, set: &WorkerSet, workers: Vec<Worker>) -> Result<(), IdTaken> {
        let events = self.registry.replace_set(&set.name, workers)?;
        let added = events.iter().filter(|event| matches!(event, FleetEvent::Added(_))).count();
        let removed = events.len() - added;
        if !events.is_empty() {
            tracing::info!(workerset = %set.name, added, removed, "the fleet changed");
        }
        self.count("added", added);
        self.count("removed", removed);
        Ok(())
    }

    /// A description of a worker set could not be used.
    pub(super) fn refused(&self) {
        self.count("refused", 1);
    }

    fn count(&self, change: &str, by: usize) {
        self.changes.with_label_values(&[change]).inc_by(by as u64);
    }
}
