//! The concurrent index that readers walk, over `dynamo-kv-router`'s compressed radix tree.
//!
//! Owner: the cache index, which swaps whole trees. Invariant: it is only told of whole prefixes (a block after its
//! parent, gone before it), in our own keys, so that what it answers at rest is exact. One thread applies all writes:
//! with several, a node split by one leaves the others to search for the pieces, and one applies some 1.8 million
//! blocks a second. Counts in blocks.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use dynamo_kv_router::{
    ConcurrentRadixTreeCompressed,
    indexer::ThreadPoolIndexer,
    protocols::{
        ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
        KvCacheStoredBlockData, LocalBlockHash, RouterEvent, WorkerWithDpRank,
    },
};

use futures::FutureExt;
use tokio::time::timeout;

use super::{
    change::{Change, Shown},
    views::View,
};
use crate::types::{BlockHash, Rank, WorkerId};

/// Fewer hidden blocks than this are not worth a rebuild.
const CHURN_FLOOR: u64 = 4096;

/// One view of one rank of one worker, as the tree names it: the view is the top bit of the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) worker: WorkerId,
    pub(super) rank: Rank,
    pub(super) view: View,
}

const ANY_TIER: u32 = 1 << 31;

impl From<Holder> for WorkerWithDpRank {
    fn from(holder: Holder) -> Self {
        let view = if holder.view == View::AnyTier { ANY_TIER } else { 0 };
        Self { worker_id: holder.worker.0, dp_rank: holder.rank.0 & !ANY_TIER | view }
    }
}

impl From<WorkerWithDpRank> for Holder {
    fn from(named: WorkerWithDpRank) -> Self {
        let view = if named.dp_rank & ANY_TIER == 0 { View::Gpu } else { View::AnyTier };
        Self { worker: WorkerId(named.worker_id), rank: Rank(named.dp_rank & !ANY_TIER), view }
    }
}

/// See the file's head.
pub(super) struct Tree {
    pool: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
    shown: AtomicU64,
    hidden: AtomicU64,
    /// The writing thread is gone: what is read gets ever more wrong until a new tree takes over.
    broken: AtomicBool,
}

impl Tree {
    pub(super) fn new() -> Self {
        // The pool only uses the block size for computing keys from tokens, which we never ask it to.
        const UNUSED_BLOCK_SIZE: u32 = 16;
        Self {
            pool: ThreadPoolIndexer::new(ConcurrentRadixTreeCompressed::new(), 1, UNUSED_BLOCK_SIZE),
            shown: AtomicU64::new(0),
            hidden: AtomicU64::new(0),
            broken: AtomicBool::new(false),
        }
    }

    /// Leading blocks of a prompt that each holder has.
    pub(super) fn find(&self, blocks: &[BlockHash]) -> impl Iterator<Item = (Holder, u32)> {
        let blocks: Vec<LocalBlockHash> = blocks.iter().map(|block| LocalBlockHash(block.0)).collect();
        let found = self.pool.backend().find_matches_impl(&blocks, false);
        found.scores.into_iter().map(|(holder, depth)| (holder.into(), depth))
    }

    /// Enqueues changes of what a holder shows, in order. How many writes that took.
    pub(super) fn write(&self, holder: Holder, changes: &[Change]) -> usize {
        runs(changes).map(|run| self.enqueue(holder, self.event(run))).count()
    }

    /// Enqueues that a holder, who shows `shown` blocks, shows nothing any more.
    pub(super) fn clear(&self, holder: Holder, shown: usize) {
        self.enqueue(holder, KvCacheEventData::Cleared);
        self.hidden.fetch_add(shown as u64, Ordering::Relaxed);
    }

    /// Returns when everything enqueued before is visible to readers, or can't become so any more.
    pub(super) async fn flush(&self) {
        const PATIENCE: Duration = Duration::from_secs(1);
        let mut flushed = pin!(self.pool.flush_and_wait());
        loop {
            match timeout(PATIENCE, &mut flushed).await {
                Ok(Ok(())) => return,
                Ok(Err(_)) => return self.lost(),
                Err(_) if self.is_dead() => return self.lost(),
                Err(_) => {}
            }
        }
    }

    /// The same, blocking the thread.
    pub(super) fn wait(&self) {
        const PATIENCE: Duration = Duration::from_millis(1);
        let mut flushed = pin!(self.pool.flush_and_wait());
        loop {
            match (&mut flushed).now_or_never() {
                Some(Ok(())) => return,
                Some(Err(_)) => return self.lost(),
                None if self.is_dead() => return self.lost(),
                None => std::thread::sleep(PATIENCE),
            }
        }
    }

    /// Whether the writing thread is gone. What was in its queue then is never answered, only what comes after is
    /// refused.
    fn is_dead(&self) -> bool {
        matches!(self.pool.flush_and_wait().now_or_never(), Some(Err(_)))
    }

    /// Whether so much has come and gone that dead branches make walks long, or the tree is broken.
    pub(super) fn is_worn(&self) -> bool {
        let hidden = self.hidden.load(Ordering::Relaxed);
        let live = self.shown.load(Ordering::Relaxed).saturating_sub(hidden);
        self.is_broken() || hidden >= CHURN_FLOOR.max(live / 4)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// Ends the writing thread, as a panic in it would.
    #[cfg(test)]
    pub(super) fn shut_down(&self) {
        use dynamo_kv_router::indexer::KvIndexerInterface;
        self.pool.shutdown();
    }

    fn event(&self, run: &[Change]) -> KvCacheEventData {
        let (mut parent, mut blocks, mut block_hashes) = (None, Vec::new(), Vec::new());
        for change in run {
            match change {
                Change::Hide(sequence) => block_hashes.push(ExternalSequenceBlockHash(sequence.0)),
                Change::Show(Shown { sequence, block, parent: before }) => {
                    if blocks.is_empty() {
                        parent = before.map(|sequence| ExternalSequenceBlockHash(sequence.0));
                    }
                    blocks.push(KvCacheStoredBlockData {
                        block_hash: ExternalSequenceBlockHash(sequence.0),
                        tokens_hash: LocalBlockHash(block.0),
                        mm_extra_info: None,
                    });
                }
            }
        }
        if blocks.is_empty() {
            self.hidden.fetch_add(block_hashes.len() as u64, Ordering::Relaxed);
            return KvCacheEventData::Removed(KvCacheRemoveData { block_hashes });
        }
        self.shown.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        KvCacheEventData::Stored(KvCacheStoreData { parent_hash: parent, start_position: None, blocks })
    }

    fn enqueue(&self, holder: Holder, data: KvCacheEventData) {
        let named = WorkerWithDpRank::from(holder);
        let event = KvCacheEvent { event_id: 0, data, dp_rank: named.dp_rank };
        if self.pool.enqueue_event(RouterEvent::new(named.worker_id, event)).is_err() {
            self.lost();
        }
    }

    fn lost(&self) {
        if !self.broken.swap(true, Ordering::Relaxed) {
            tracing::error!("the cache index lost its writing thread; a new tree will be built");
        }
    }
}

/// Cuts changes into runs that one write can carry: blocks hidden one after the other, or blocks shown each after
/// the one before.
fn runs(changes: &[Change]) -> impl Iterator<Item = &[Change]> {
    changes.chunk_by(|a, b| match (a, b) {
        (Change::Hide(_), Change::Hide(_)) => true,
        (Change::Show(a), Change::Show(b)) => b.parent == Some(a.sequence),
        _ => false,
    })
}
