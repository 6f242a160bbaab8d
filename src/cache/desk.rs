//! Where the events of one subscription (worker, rank) are written down: its ledger, and the trees that mirror it.
//!
//! Owner: the cache index; a writer holds a handle. Invariant: after `fence` returned, nothing written here reaches a
//! tree: what it does to the trees is enqueued under its lock, and each tree applies in the order of the queue.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{
    Applied, BlockCounts,
    ledger::Ledger,
    tree::{Holder, Tree},
    views::View,
};
use crate::types::{KvEvent, Rank, WorkerId};

/// See the file's head.
pub(super) struct Desk {
    worker: WorkerId,
    rank: Rank,
    state: Mutex<State>,
}

struct State {
    ledger: Ledger,
    /// `None`: fenced. A writer that outlives its desk must not keep an old tree alive.
    trees: Option<Trees>,
}

/// The tree that readers walk, and the one that is being built to follow it.
#[derive(Clone)]
pub(super) struct Trees {
    pub(super) current: Arc<Tree>,
    pub(super) next: Option<Arc<Tree>>,
}

impl Trees {
    fn each(&self) -> impl Iterator<Item = &Arc<Tree>> {
        std::iter::once(&self.current).chain(&self.next)
    }
}

impl Desk {
    pub(super) fn new((worker, rank): (WorkerId, Rank), block_size: u32, trees: Trees) -> Self {
        let state = State { ledger: Ledger::new(block_size), trees: Some(trees) };
        Self { worker, rank, state: Mutex::new(state) }
    }

    /// Applies an event. With the number of writes that were enqueued for it.
    pub(super) fn apply(&self, event: &KvEvent) -> (Applied, usize) {
        let mut state = self.state.lock();
        let State { ledger, trees: Some(trees) } = &mut *state else { return (Applied::Fenced, 0) };
        if *event == KvEvent::Cleared {
            return (self.clear(ledger, trees), 1);
        }
        let applied = ledger.apply(event);
        let mut writes = 0;
        for view in View::ALL {
            let changes = ledger.take_changes(view);
            for tree in trees.each() {
                writes += tree.write(self.holder(view), &changes);
            }
        }
        (applied, writes)
    }

    /// Ends it: what it held is gone, and what is still written here is dropped.
    pub(super) fn fence(&self) {
        let state = &mut *self.state.lock();
        if let Some(trees) = state.trees.take() {
            self.clear(&mut state.ledger, &trees);
        }
    }

    pub(super) fn counts(&self) -> BlockCounts {
        self.state.lock().ledger.counts()
    }

    /// Copies what is held into the tree that is being built; from here on both are written.
    pub(super) fn copy_into(&self, next: &Arc<Tree>) {
        let mut state = self.state.lock();
        let State { ledger, trees: Some(trees) } = &mut *state else { return };
        if trees.next.is_none() {
            for view in View::ALL {
                next.write(self.holder(view), &ledger.dump(view));
            }
            trees.next = Some(Arc::clone(next));
        }
    }

    /// The new tree is the one that readers walk: the old one is written no more.
    pub(super) fn move_to(&self, trees: &Trees) {
        if let Some(own) = &mut self.state.lock().trees {
            *own = trees.clone();
        }
    }

    fn clear(&self, ledger: &mut Ledger, trees: &Trees) -> Applied {
        for view in View::ALL {
            // A tree clears by walking all of itself: not for a rank that shows nothing.
            let shown = ledger.shown(view);
            for tree in trees.each().filter(|_| shown > 0) {
                tree.clear(self.holder(view), shown);
            }
        }
        ledger.apply(&KvEvent::Cleared)
    }

    fn holder(&self, view: View) -> Holder {
        Holder { worker: self.worker, rank: self.rank, view }
    }
}
