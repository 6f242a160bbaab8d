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

use super::{Member, Worker};
use crate::types::WorkerId;

/// As many places in which discovery looks are told.
const SOUGHT: usize = 8;

/// All members by id. Cheap to clone.
pub type Snapshot = Arc<BTreeMap<WorkerId, Arc<Member>>>;

/// One change of membership.
#[derive(Clone, Debug)]
pub enum FleetEvent {
    /// A new worker, or another engine after the old one was removed.
    Added(Arc<Member>),
    /// Gone, or about to be added anew because it is another engine now.
    Removed(Arc<Member>),
}

/// How far discovery is with the worker sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Those whose members it has told, be it that there are none.
    pub sets: BTreeSet<Arc<str>>,
    /// Those that exist and whose members it has not told yet.
    pub awaited: BTreeSet<Arc<str>>,
    /// Whether there may be others that it has not come upon yet.
    pub more: bool,
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
    /// Its lock makes writers wait for each other.
    described: Mutex<Described>,
    generations: AtomicU64,
    changed: watch::Sender<u64>,
    /// Where discovery looks for workers, by whom it is for, in words.
    sought: Mutex<BTreeMap<Arc<str>, String>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            snapshot: ArcSwap::default(),
            described: Mutex::default(),
            generations: AtomicU64::new(1),
            changed: watch::channel(0).0,
            sought: Mutex::default(),
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

    /// How far discovery is with the worker sets.
    pub fn described(&self) -> Described {
        self.described.lock().clone()
    }

    /// There is a worker set of that name; its members are told later.
    pub fn await_set(&self, set: &Arc<str>) {
        let mut described = self.described.lock();
        if !described.sets.contains(set) && described.awaited.insert(set.clone()) {
            self.changed.send_modify(|version| *version += 1);
        }
    }

    /// Whether there may be worker sets that nobody has named yet.
    pub fn await_more(&self, more: bool) {
        let mut described = self.described.lock();
        if std::mem::replace(&mut described.more, more) != more {
            self.changed.send_modify(|version| *version += 1);
        }
    }

    /// Where discovery looks for the workers of `set`, in words.
    pub fn seek(&self, set: &str, what: String) {
        self.sought.lock().insert(set.into(), what);
    }

    /// Where discovery looks for workers, in words: no more than a reader takes in; `None`: nowhere, or a file lists them.
    pub fn sought(&self) -> Option<String> {
        let sought = self.sought.lock();
        let all: Vec<_> = sought.values().take(SOUGHT).map(String::as_str).collect();
        let more = if sought.len() > SOUGHT {
            format!("; and {} more", sought.len() - SOUGHT)
        } else {
            String::new()
        };
        (!all.is_empty()).then(|| all.join("; ") + &more)
    }

    /// Wakes at every change; compare snapshots with [`diff`] to learn who joined and left.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Makes `workers` the members of worker set `set`: others of that set leave, the same engines stay who they are,
    /// with what is said of them now, and other engines are a new generation. Tells who joined and left.
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
            let member = self.member(old.get(&worker.id), worker);
            new.insert(member.worker.id, member);
        }
        described.awaited.remove(set);
        let first_told = described.sets.insert(set.into());
        Ok(self.swap(&old, new, first_told))
    }

    /// Ends worker set `set`: its members leave, and it is not described any more.
    pub fn remove_set(&self, set: &str) -> Vec<FleetEvent> {
        self.sought.lock().remove(set);
        let mut described = self.described.lock();
        let known = described.awaited.remove(set) | described.sets.remove(set);
        let old = self.snapshot.load_full();
        let others = old.iter().filter(|(_, m)| &*m.worker.set.name != set);
        self.swap(&old, others.map(|(id, m)| (*id, m.clone())).collect(), known)
    }

    fn member(&self, before: Option<&Arc<Member>>, worker: Worker) -> Arc<Member> {
        match before {
            Some(member) if member.worker == worker => member.clone(),
            Some(member) if member.worker.is_same_engine(&worker) => {
                Arc::new(Member { worker, generation: member.generation, status: member.status.clone() })
            }
            _ => Arc::new(Member {
                worker,
                generation: self.generations.fetch_add(1, Ordering::Relaxed),
                status: Arc::default(),
            }),
        }
    }

    /// Makes `new` the members, and wakes watchers if that, or something else, is a change.
    fn swap(&self, old: &Snapshot, new: BTreeMap<WorkerId, Arc<Member>>, changed: bool) -> Vec<FleetEvent> {
        let events = diff(old, &new);
        let same = old.len() == new.len() && old.values().zip(new.values()).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.snapshot.store(Arc::new(new));
        }
        if changed || !same {
            self.changed.send_modify(|version| *version += 1);
        }
        events
    }
}

/// What changed between two snapshots: removals first, then additions; by generation, so that
/// another engine under an old id is both.
pub fn diff(old: &BTreeMap<WorkerId, Arc<Member>>, new: &BTreeMap<WorkerId, Arc<Member>>) -> Vec<FleetEvent> {
    let same = |side: &BTreeMap<WorkerId, Arc<Member>>, m: &Arc<Member>| {
        side.get(&m.worker.id).is_some_and(|other| other.generation == m.generation)
    };
    let removed = old.values().filter(|m| !same(new, m)).cloned().map(FleetEvent::Removed);
    let added = new.values().filter(|m| !same(old, m)).cloned().map(FleetEvent::Added);
    removed.chain(added).collect()
}
