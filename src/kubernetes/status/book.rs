//! What is wanted of every object's status, what it is, and which is to be written next.
//!
//! Invariant: an object is written at most once in `PACE`, failures back off by themselves, and the last word is kept until
//! the status says it. No I/O.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::Resource;
use rand::{SeedableRng, rngs::StdRng};
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::merge::{Wanted, merge};
use crate::kubernetes::{
    backoff::{Backoff, Bounds},
    failure::{Failure, Target},
};

/// Between two writes of one object.
const PACE: Duration = Duration::from_secs(1);
const RETRY: Bounds = Bounds { least: Duration::from_millis(200), most: Duration::from_secs(10) };

/// An object among all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The path of its kind, in its namespace.
    pub(super) path: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        let meta = object.meta();
        let path = K::url_path(&(), meta.namespace.as_deref());
        Self { path, name: meta.name.clone().unwrap_or_default() }
    }
}

/// An object as it was last seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Present {
    pub(super) uid: Option<String>,
    pub(super) version: Option<String>,
    pub(super) status: Value,
}

impl Present {
    /// From the API server's JSON.
    pub(super) fn parse(mut object: Value) -> Self {
        let text = |field| object["metadata"][field].as_str().map(Into::into);
        Self { uid: text("uid"), version: text("resourceVersion"), status: object["status"].take() }
    }
}

/// What is said of one object.
struct Entry {
    target: Target,
    present: Present,
    wanted: Wanted,
    /// Of the object that `wanted` was said of.
    generation: Option<i64>,
    differs: bool,
    due: Instant,
    backoff: Backoff,
    /// How the last write failed.
    failing: Option<&'static str>,
}

impl Entry {
    fn compare(&mut self) {
        let patch = merge(&self.present.status, (&self.wanted, self.generation), Timestamp::UNIX_EPOCH);
        self.differs = patch.is_some();
    }
}

/// A status to write.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) key: Key,
    pub(super) target: Target,
    over: Present,
    status: Map<String, Value>,
}

impl Job {
    /// A merge patch. It names the version that it was made for, so that it fails on any other: a write that a
    /// partition holds up can't undo what a later leader has written.
    pub(super) fn body(&self) -> Value {
        json!({"metadata": {"resourceVersion": self.over.version}, "status": self.status})
    }
}

/// What to do next.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// Nothing until more is said.
    Nothing,
    /// Nothing before then.
    At(Instant),
    /// Write this.
    Write(Box<Job>),
}

/// All that is said.
pub(super) struct Book {
    entries: HashMap<Key, Entry>,
    rng: StdRng,
}

impl Book {
    pub(super) fn new(rng: StdRng) -> Self {
        Self { entries: HashMap::new(), rng }
    }

    pub(super) fn say<K>(&mut self, object: &K, wanted: Wanted)
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let key = Key::of(object);
        let present = Present::parse(json!(object));
        let generation = object.meta().generation;
        let target = Target::of::<K>(object.meta().namespace.as_deref()).status();
        let before = self.entries.remove(&key).filter(|entry| entry.present.uid == present.uid);
        let (due, backoff, failing) = match before {
            Some(entry) => (entry.due, entry.backoff, entry.failing),
            None => (Instant::now(), Backoff::new(RETRY, StdRng::from_rng(&mut self.rng)), None),
        };
        let mut entry = Entry { target, present, wanted, generation, differs: false, due, backoff, failing };
        entry.compare();
        self.entries.insert(key, entry);
    }

    pub(super) fn forget(&mut self, key: &Key) {
        self.entries.remove(key);
    }

    /// Statuses that do not say what they should.
    pub(super) fn pending(&self) -> usize {
        self.entries.values().filter(|entry| entry.differs).count()
    }

    pub(super) fn next(&self, now: Instant, wall: Timestamp) -> Next {
        let waiting = self.entries.iter().filter(|(_, entry)| entry.differs);
        let Some((key, entry)) = waiting.min_by_key(|(_, entry)| entry.due) else { return Next::Nothing };
        if entry.due > now {
            return Next::At(entry.due);
        }
        match merge(&entry.present.status, (&entry.wanted, entry.generation), wall) {
            Some(status) => {
                let (target, over) = (entry.target.clone(), entry.present.clone());
                Next::Write(Box::new(Job { key: key.clone(), target, over, status }))
            }
            None => Next::Nothing,
        }
    }

    /// A write was done: this is the object now. Whether that was the last of them to fail.
    pub(super) fn wrote(&mut self, job: &Job, present: Present, now: Instant) -> bool {
        let Some(entry) = self.entry_of(job) else { return false };
        entry.present = present;
        entry.due = now + PACE;
        entry.backoff.reset();
        entry.compare();
        entry.failing.take().is_some() && self.entries.values().all(|entry| entry.failing.is_none())
    }

    /// A write failed because the object has changed, and this is it.
    pub(super) fn reread(&mut self, job: &Job, present: Present, now: Instant) {
        if present.uid != job.over.uid {
            // Another by that name: whoever watches will say what is to be said of it.
            return self.gone(job);
        }
        if let Some(entry) = self.entry_of(job) {
            entry.present = present;
            entry.due = now + entry.backoff.pause();
            entry.compare();
        }
    }

    /// A write failed. Whether that is news: none of its kind fails in this way already.
    pub(super) fn failed(&mut self, job: &Job, failure: &Failure, now: Instant) -> bool {
        // An object that was deleted meanwhile is none.
        if *failure == Failure::NotFound {
            self.gone(job);
            return false;
        }
        let label = Some(failure.label());
        let mut alike = self.entries.values().filter(|entry| entry.target == job.target);
        let known = alike.any(|entry| entry.failing == label);
        let Some(entry) = self.entry_of(job) else { return false };
        entry.due = now + entry.backoff.pause();
        entry.failing = label;
        !known
    }

    fn gone(&mut self, job: &Job) {
        if self.entry_of(job).is_some() {
            self.entries.remove(&job.key);
        }
    }

    fn entry_of(&mut self, job: &Job) -> Option<&mut Entry> {
        self.entries.get_mut(&job.key).filter(|entry| entry.present.uid == job.over.uid)
    }
}
