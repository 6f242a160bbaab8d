//! The one way for discovery to change the fleet, with the log line and the counts that go with it.
//!
//! Invariant: numbers and names of listed workers are as they are listed; those of found engines make way for them.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use prometheus::IntCounterVec;

use super::{
    Found,
    identity::{Identity, Taken, hash, identify},
};
use crate::{
    fleet::{FleetEvent, IdTaken, Registry, Worker, WorkerSet},
    observe::Metrics,
};

/// Writes worker sets into the registry. Cheap to clone.
#[derive(Clone)]
pub struct FleetWriter {
    registry: Arc<Registry>,
    changes: IntCounterVec,
    files: IntCounterVec,
    /// The sets whose engines are found, by name. Its lock makes writers wait for each other.
    found: Arc<Mutex<BTreeMap<Arc<str>, FoundSet>>>,
}

/// A set whose engines are found.
struct FoundSet {
    set: Arc<WorkerSet>,
    engines: Vec<Found>,
    given: BTreeMap<String, Identity>,
}

impl FleetWriter {
    /// A writer of `registry`. Call once: it registers metrics.
    pub fn new(registry: Arc<Registry>, metrics: &Metrics) -> Self {
        let changes = metrics.counters_from_zero(
            "kinference_fleet_changes_total",
            "Workers added and removed by discovery, and descriptions of worker sets that were refused.",
            ("change", &["added", "removed", "refused"]),
        );
        let files = metrics.counters_from_zero(
            "kinference_workers_file_reloads_total",
            "Workers files that were taken over, at the start and when they changed, and those that could not be used.",
            ("outcome", &["applied", "refused"]),
        );
        Self { registry, changes, files, found: Arc::default() }
    }

    /// Makes the listed `workers` the members of `set`.
    ///
    /// # Errors
    /// An id that another listed set has; then nothing changes.
    pub fn replace(&self, set: &WorkerSet, workers: Vec<Worker>) -> Result<(), IdTaken> {
        let mut found = self.found.lock();
        let mut listed = Taken::default();
        workers.iter().for_each(|worker| listed.take(worker.id, worker.name.clone()));
        for other in found.values_mut().filter(|other| other.given.values().any(|own| !listed.is_free(own))) {
            self.give(other, &listed)?;
        }
        let events = self.registry.replace_set(&set.name, workers)?;
        self.tell(&set.name, &events);
        Ok(())
    }

    /// Makes the found `engines` the members of `set`, each with a number and a name of its own.
    pub fn place(&self, set: &Arc<WorkerSet>, engines: Vec<Found>) {
        let mut found = self.found.lock();
        let given = found.remove(&set.name).map(|before| before.given).unwrap_or_default();
        let mut placed = FoundSet { set: set.clone(), engines, given };
        if let Err(error) = self.give(&mut placed, &Taken::default()) {
            // Nobody else writes meanwhile, and only what is free is given.
            self.refused();
            tracing::error!(workerset = %set.name, %error, "found engines can't be placed: the fleet stays as it is");
        }
        found.insert(set.name.clone(), placed);
    }

    /// Where the engines of `set` are looked for, in words.
    pub(super) fn seek(&self, set: &str, what: String) {
        self.registry.seek(set, what);
    }

    /// Ends a set whose engines are found.
    pub fn remove(&self, set: &str) {
        let mut found = self.found.lock();
        found.remove(set);
        let events = self.registry.remove_set(set);
        self.tell(set, &events);
    }

    /// Gives the engines of a set what neither `listed` workers nor other sets have.
    fn give(&self, placed: &mut FoundSet, listed: &Taken) -> Result<(), IdTaken> {
        let name = placed.set.name.clone();
        let mut taken = listed.clone();
        for member in self.registry.snapshot().values().filter(|member| member.worker.set.name != name) {
            taken.take(member.worker.id, member.worker.name.clone());
        }
        let claims: Vec<_> = placed.engines.iter().map(Found::claim).collect();
        placed.given = identify(&claims, &placed.given, taken, hash);
        let engines: BTreeMap<&str, &Found> =
            placed.engines.iter().map(|found| (&*found.key, found)).collect();
        let identified = engines.iter().filter_map(|(key, found)| Some((found, placed.given.get(*key)?)));
        let workers = identified.map(|(found, identity)| found.worker(&placed.set, identity)).collect();
        let events = self.registry.replace_set(&name, workers)?;
        self.tell(&name, &events);
        Ok(())
    }

    /// A workers file was read anew.
    pub(super) fn file_read(&self, applied: bool) {
        self.files.with_label_values(&[if applied { "applied" } else { "refused" }]).inc();
    }

    /// A description of a worker set could not be used.
    pub(super) fn refused(&self) {
        self.count("refused", 1);
    }

    fn tell(&self, set: &str, events: &[FleetEvent]) {
        let added = events.iter().filter(|event| matches!(event, FleetEvent::Added(_))).count();
        let removed = events.len() - added;
        if !events.is_empty() {
            tracing::info!(workerset = %set, added, removed, "the fleet changed");
        }
        self.count("added", added);
        self.count("removed", removed);
    }

    fn count(&self, change: &str, by: usize) {
        self.changes.with_label_values(&[change]).inc_by(by as u64);
    }
}

#[cfg(test)]
mod tests;
