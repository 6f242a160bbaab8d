//! The writing end of one subscription.
//!
//! Owner: the task that reads the subscription's events. Invariant: what is applied is enqueued before `apply`
//! returns, in order; the queue behind it is bounded, because a writer that is far ahead waits.

use std::sync::Arc;

use super::{Applied, CacheIndex, desk::Desk};
use crate::types::KvEvent;

/// Writes enqueued since the queue was last known to be empty, at which [`CacheWriter::ready`] waits for it.
const SOFT_LIMIT: usize = 1024;
/// The same at which `apply` itself waits, blocking its thread: for a caller that never waits.
const HARD_LIMIT: usize = 65_536;

/// Writes what one engine's rank holds. See [`CacheIndex::writer`].
pub struct CacheWriter {
    index: Arc<CacheIndex>,
    desk: Arc<Desk>,
    ahead: usize,
}

impl CacheWriter {
    pub(super) fn new(index: Arc<CacheIndex>, desk: Arc<Desk>) -> Self {
        Self { index, desk, ahead: 0 }
    }

    /// Applies one event. It becomes visible to readers soon after; [`CacheIndex::settled`] waits for that.
    pub fn apply(&mut self, event: &KvEvent) -> Applied {
        let (applied, writes) = self.desk.apply(event);
        self.index.instruments.applied(applied);
        self.ahead += writes;
        if self.ahead >= HARD_LIMIT {
            self.index.settle();
            self.ahead = 0;
        }
        applied
    }

    /// Forgets everything that the rank held.
    pub fn clear(&mut self) {
        self.apply(&KvEvent::Cleared);
    }

    /// Waits, if this writer is far ahead of the index. To be called between batches of events, so that a long
    /// replay neither fills memory nor blocks a thread.
    pub async fn ready(&mut self) {
        if self.ahead >= SOFT_LIMIT {
            self.index.settled().await;
            self.ahead = 0;
        }
    }
}
