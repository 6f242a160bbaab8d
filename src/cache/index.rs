//! The cache index: which leading blocks of a prompt each worker holds.
//!
//! Owner: `CacheIndex`, shared by all. Invariant: at most one writer of each (worker, rank) is heard; a reader walks
//! one whole tree and takes no lock. Locks nest in one order: the registry, then a desk.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use super::{
    BlockCounts, CacheWriter,
    desk::{Desk, Trees},
    instruments::Instruments,
    tree::Tree,
    views::View,
};
use crate::{
    observe::Metrics,
    types::{BlockKeys, Overlap, Rank, WorkerId},
};

/// See the file's head.
pub struct CacheIndex {
    /// What readers walk; always the registry's current tree.
    walked: ArcSwap<Tree>,
    pub(super) registry: Mutex<Registry>,
    pub(super) instruments: Instruments,
}

pub(super) struct Registry {
    pub(super) desks: BTreeMap<(WorkerId, Rank), Arc<Desk>>,
    pub(super) trees: Trees,
}

impl CacheIndex {
    /// An index of no workers.
    pub fn new(metrics: &Metrics) -> Arc<Self> {
        let tree = Arc::new(Tree::new());
        let trees = Trees { current: Arc::clone(&tree), next: None };
        Arc::new(Self {
            walked: ArcSwap::new(tree),
            registry: Mutex::new(Registry { desks: BTreeMap::new(), trees }),
            instruments: Instruments::new(metrics),
        })
    }

    /// The writer of a subscription; `block_size` is what its full-attention blocks must have, in tokens. An older
    /// writer of the same (worker, rank) is fenced: its blocks are cleared, and what it still writes is dropped.
    /// Ranks are below 2^31.
    pub fn writer(self: &Arc<Self>, worker: WorkerId, rank: Rank, block_size: u32) -> CacheWriter {
        let mut registry = self.registry.lock();
        let desk = Arc::new(Desk::new((worker, rank), block_size, registry.trees.clone()));
        if let Some(older) = registry.desks.get(&(worker, rank)) {
            older.fence();
        }
        registry.desks.insert((worker, rank), Arc::clone(&desk));
        CacheWriter::new(Arc::clone(self), desk)
    }

    /// Forgets a worker: fences the writers of all its ranks.
    pub fn remove_worker(&self, worker: WorkerId) {
        let mut registry = self.registry.lock();
        for ((_, _), desk) in
            registry.desks.extract_if((worker, Rank(0))..=(worker, Rank(u32::MAX)), |_, _| true)
        {
            desk.fence();
        }
    }

    /// Cached leading blocks of a prompt on every worker that has any: of several ranks, the best one's. In-flight
    /// prefills are none of this room's knowledge: `expected` is `confirmed`.
    pub fn overlap(&self, keys: &BlockKeys) -> HashMap<WorkerId, Overlap> {
        let _timer = self.instruments.lookup.start_timer();
        let tree = self.walked.load();
        let mut out: HashMap<WorkerId, Overlap> = HashMap::new();
        for (holder, depth) in tree.find(&keys.blocks).filter(|(_, depth)| *depth > 0) {
            let overlap = out.entry(holder.worker).or_default();
            if holder.view == View::Gpu {
                overlap.confirmed = overlap.confirmed.max(depth);
                overlap.expected = overlap.confirmed;
            }
            overlap.any_tier = overlap.any_tier.max(depth);
        }
        out
    }

    /// Distinct blocks that a worker holds and that can earn credit, summed over its ranks.
    pub fn blocks(&self, worker: WorkerId) -> BlockCounts {
        let registry = self.registry.lock();
        let mut sum = BlockCounts::default();
        for desk in registry.desks.range((worker, Rank(0))..=(worker, Rank(u32::MAX))).map(|(_, desk)| desk) {
            let counts = desk.counts();
            sum.gpu += counts.gpu;
            sum.lower += counts.lower;
        }
        sum
    }

    /// Returns when everything written before is visible to readers.
    pub async fn settled(&self) {
        // Both trees: the one being built may take over while we wait for the other.
        let trees = self.registry.lock().trees.clone();
        trees.current.flush().await;
        if let Some(next) = trees.next {
            next.flush().await;
        }
    }

    /// The same, blocking the thread.
    pub(super) fn settle(&self) {
        let trees = self.registry.lock().trees.clone();
        trees.current.wait();
        if let Some(next) = trees.next {
            next.wait();
        }
    }

    /// Makes a tree the one that readers walk and writers write. The tree that it replaces.
    pub(super) fn take_over(&self, tree: &Arc<Tree>) -> Arc<Tree> {
        let (old, trees, desks) = {
            let mut registry = self.registry.lock();
            registry.trees = Trees { current: Arc::clone(tree), next: None };
            let desks: Vec<_> = registry.desks.values().cloned().collect();
            (self.walked.swap(Arc::clone(tree)), registry.trees.clone(), desks)
        };
        for desk in desks {
            desk.move_to(&trees);
        }
        old
    }
}
