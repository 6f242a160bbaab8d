//! The fleet's membership: one writer at a time, snapshots for readers, a stream of changes for tasks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{Member, Status, Worker};
use crate::types::WorkerId;

/// All members by id. Cheap to clone.
pub type Snapshot = Arc<BTreeMap<WorkerId, Arc<Member>>>;

/// One change of membership.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// A new worker, or an altered one after its old self was removed.
    Added(Arc<Member>),
    /// Gone, or about to be added anew because its description changed.
    Removed(Arc<Member>),
}

/// A worker set that may not join, because an id is taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("worker set `{set}`: worker_id {what} is already used by worker set `{taken_by}`")]
pub struct IdTaken {
    /// The set that was refused.
    pub set: String,
    /// Its id that is not free.
    pub what: String,
    /// Who has it.
    pub taken_by: String,
}

/// The registry of workers.
pub struct Registry {
    snapshot: ArcSwap<BTreeMap<WorkerId, Arc<Member>>>,
    /// The worker sets that were described so far. Its lock makes writers wait for each other.
    described: Mutex<BTreeSet<Arc<str>>>,
    generations: AtomicU64,
    changed: watch::Sender<u64>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            snapshot: ArcSwap::default(),
            described: Mutex::default(),
            generations: AtomicU64::new(1),
            changed: watch::channel(0).0,
        }
    }
}

impl Registry {
    /// The members now.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot.load_full()
    }

    /// One member.
    pub fn get(&self, id: WorkerId) -> Option<Arc<Member>> {
        self.snapshot.load().get(&id).cloned()
    }

    /// The worker sets whose members discovery has told, be it that there are none.
    pub fn described(&self) -> BTreeSet<Arc<str>> {
        self.described.lock().clone()
    }

    /// Wakes at every change of membership; compare snapshots with [`diff`] to learn what changed.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Makes `workers` the members of worker set `set`: others of that set leave, equal ones stay as
    /// they are, altered ones are replaced by a new generation.
    ///
    /// # Errors
    /// An id that another set has; then nothing changes.
    pub fn replace_set(&self, set: &str, workers: Vec<Worker>) -> Result<Vec<FleetEvent>, IdTaken> {
        let mut described = self.described.lock();
        let old = self.snapshot.load_full();
        let mut new: BTreeMap<_, _> =
            old.iter().filter(|(_, m)| &*m.worker.set.name != set).map(|(id, m)| (*id, m.clone())).collect();
        let mut names: HashMap<Arc<str>, WorkerId> =
            new.values().map(|m| (m.worker.name.clone(), m.worker.id)).collect();
        for worker in workers {
            let by_name = names.get(&worker.name).and_then(|id| new.get(id));
            if let Some(other) = new.get(&worker.id).or(by_name) {
                let what = format!("`{}` ({})", worker.name, worker.id);
                return Err(IdTaken { set: set.into(), what, taken_by: other.worker.set.name.to_string() });
            }
            names.insert(worker.name.clone(), worker.id);
            let member = match old.get(&worker.id) {
                Some(member) if member.worker == worker => member.clone(),
                _ => Arc::new(Member {
                    worker,
                    generation: self.generations.fetch_add(1, Ordering::Relaxed),
                    status: Status::default(),
                }),
            };
            new.insert(member.worker.id, member);
        }
        if !described.contains(set) {
            described.insert(set.into());
        }
        let events = diff(&old, &new);
        if !events.is_empty() {
            self.snapshot.store(Arc::new(new));
            self.changed.send_modify(|version| *version += 1);
        }
        Ok(events)
    }
}

/// What changed between two snapshots: removals first, then additions; by generation, so that an altered
/// worker is both.
pub fn diff(old: &BTreeMap<WorkerId, Arc<Member>>, new: &BTreeMap<WorkerId, Arc<Member>>) -> Vec<FleetEvent> {
    let same = |side: &BTreeMap<WorkerId, Arc<Member>>, m: &Arc<Member>| {
        side.get(&m.worker.id).is_some_and(|other| other.generation == m.generation)
    };
    let removed = old.values().filter(|m| !same(new, m)).cloned().map(FleetEvent::Removed);
    let added = new.values().filter(|m| !same(old, m)).cloned().map(FleetEvent::Added);
    removed.chain(added).collect()
}
