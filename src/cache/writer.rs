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
///
/// **Re-announced blocks.** An engine that computes a block again stores it as a second physical copy, and each copy
/// is removed on its own; from vLLM 0.27 on a request can also ask that reused blocks be announced again, which is
/// no new copy. The events are the same. Every store is counted as a copy: repeating a prompt makes copies on every
/// engine by default, whereas re-announcing must be asked for. The price is that a re-announced block stays credited
/// after the engine evicted it, until the rank is cleared or replayed; not counting would cost the credit of blocks
/// that are there, on every engine, all the time.
///
/// **Groups.** Only those of full attention give credit and are held to the block size. With several, a block counts
/// when each that was seen from the rank holds it; whatever other groups hold of it changes nothing.
///
/// **Blocks without tokens** (offloading connectors name what they copy by handle) are taken for what the handle
/// means on another tier, whatever block size they state.
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
