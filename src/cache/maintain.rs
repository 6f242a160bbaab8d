//! Keeps the tree that readers walk small and fast: builds it anew when it is worn. (Between rebuilds the pool frees
//! empty leaves by itself; it never joins split nodes, which is what makes walks long.)
//!
//! Owner: the app spawns `maintain`, once. Invariant: while a tree is built every desk writes both, so that the moment
//! of the swap loses nothing. All of it off the readers' path: they never wait, nor do they free an old tree.

use std::{convert::Infallible, sync::Arc, time::Duration};

use tokio::time::{MissedTickBehavior, interval};

use super::{CacheIndex, tree::Tree};

/// Between two looks at the tree.
const PERIOD: Duration = Duration::from_secs(30);

impl CacheIndex {
    /// Never returns.
    pub async fn maintain(self: Arc<Self>) -> Infallible {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let tree = Arc::clone(&self.registry.lock().trees.current);
            if !tree.is_worn() {
                continue;
            }
            if tree.is_broken() {
                self.instruments.broken.inc();
            }
            drop(tree);
            self.rebuild().await;
        }
    }

    /// Builds a fresh tree of what all ranks hold and lets it take over.
    pub(super) async fn rebuild(&self) {
        let fresh = Arc::new(Tree::new());
        let desks: Vec<_> = {
            let mut registry = self.registry.lock();
            registry.trees.next = Some(Arc::clone(&fresh));
            registry.desks.values().cloned().collect()
        };
        for desk in desks {
            desk.copy_into(&fresh);
            // One rank's blocks in the queue at a time.
            fresh.flush().await;
        }
        let old = self.take_over(&fresh);
        self.instruments.rebuilds.inc();
        retire(old).await;
    }
}

/// Drops a tree that nothing new can reach, off the async threads, once the last reader has let go of it.
async fn retire(mut tree: Arc<Tree>) {
    const PATIENCE: Duration = Duration::from_millis(10);
    loop {
        match Arc::try_unwrap(tree) {
            Ok(tree) => {
                // Dropping joins the writing thread and frees every node.
                if let Err(error) = tokio::task::spawn_blocking(move || drop(tree)).await {
                    tracing::error!(%error, "dropping an old cache index panicked");
                }
                return;
            }
            Err(shared) => tree = shared,
        }
        tokio::time::sleep(PATIENCE).await;
    }
}
