//! What one watcher is told, as a pure state machine: a snapshot, then the difference of each look to the one before.
//!
//! Invariant: applying every message in order gives what was looked at last. Pending are at most one look's changes; a
//! watcher that missed a look while it took them gets a snapshot.

use std::{collections::VecDeque, sync::Arc};

use crate::{
    roster::WorkerView,
    serve::{
        live::Told,
        proto::{Snapshot, WatchWorkersResponse, watch_workers_response::Update},
    },
};

/// Which workers somebody asks for: of one worker set, or all.
#[derive(Debug)]
pub struct Scope(Option<String>);

impl Scope {
    /// By name; empty: all.
    pub fn of(worker_set: String) -> Self {
        Self(Some(worker_set).filter(|name| !name.is_empty()))
    }

    /// Whether a worker is among them.
    pub fn has(&self, worker: &WorkerView) -> bool {
        self.0.as_ref().is_none_or(|name| **name == *worker.workerset)
    }
}

/// One watcher.
#[derive(Debug)]
pub struct Watch {
    scope: Scope,
    seen: Option<Told<Vec<WorkerView>>>,
    pending: VecDeque<Update>,
}

impl Watch {
    /// One that was told nothing yet.
    pub fn new(scope: Scope) -> Self {
        Self { scope, seen: None, pending: VecDeque::new() }
    }

    /// What to tell it next of what it saw.
    pub fn next(&mut self) -> Option<WatchWorkersResponse> {
        self.pending.pop_front().map(|update| WatchWorkersResponse { update: Some(update) })
    }

    /// Shows it the fleet, once everything before is told. Whether that is news.
    pub fn see(&mut self, newest: &Told<Vec<WorkerView>>) -> bool {
        match self.seen.replace(newest.clone()) {
            Some(seen) if seen.version == newest.version => return false,
            Some(seen) if seen.version + 1 == newest.version => self.differ(&seen.value, &newest.value),
            _ => {
                let workers = newest.value.iter().filter(|w| self.scope.has(w)).map(Into::into).collect();
                self.pending.push_back(Update::Snapshot(Snapshot { workers }));
            }
        }
        true
    }

    fn differ(&mut self, old: &Arc<Vec<WorkerView>>, new: &Arc<Vec<WorkerView>>) {
        // Both are ordered by id, and small beside what it costs to look at the fleet.
        let find = |side: &[WorkerView], worker: &WorkerView| {
            let at = side.binary_search_by_key(&worker.id, |other| other.id).ok()?;
            Some(at).filter(|at| side[*at].name == worker.name && self.scope.has(&side[*at]))
        };
        let gone = old.iter().filter(|w| self.scope.has(w) && find(new, w).is_none());
        let mut updates: VecDeque<_> = gone.map(|w| Update::Removed(w.name.to_string())).collect();
        for worker in new.iter().filter(|w| self.scope.has(w)) {
            if find(old, worker).is_none_or(|at| old[at] != *worker) {
                updates.push_back(Update::Changed(worker.into()));
            }
        }
        self.pending.append(&mut updates);
    }
}
