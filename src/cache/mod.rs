//! Which blocks each worker holds, and the block keys that say so. Over `dynamo-kv-router`'s radix tree.
//!
//! Events go through one [`CacheWriter`] for each subscription (worker, rank) into that rank's ledger, which counts
//! copies by the engine's handles and works out which blocks a prompt could reuse; only those reach the tree that
//! [`CacheIndex::overlap`] walks. Invariant: what the tree holds for a rank is exactly the blocks of known content
//! that are held together with everything before them; nothing is credited on a guess. Sizes in tokens and blocks.
//!
//! **Re-announced blocks.** An engine that computes a block again stores it as a second physical copy, and each copy
//! is removed on its own; from vLLM 0.27 on a request can also ask that reused blocks be announced again, which is
//! no new copy. The events are the same. We count every store as a copy: repeating a prompt makes copies on every
//! engine by default, whereas re-announcing must be asked for. The price is that a re-announced block stays credited
//! after the engine evicted it, until the rank is cleared or replayed; not counting would cost the credit of blocks
//! that are there, on every engine, all the time.
//!
//! **Several full-attention groups.** A block counts when every such group seen from the rank holds it.

mod applied;
mod chain;
mod desk;
mod index;
mod instruments;
mod keys;
mod ledger;
mod maintain;
mod salts;
mod shelf;
mod tree;
mod views;
mod writer;

#[cfg(test)]
mod tests;

pub use applied::{Applied, BlockCounts, NoCreditReason};
pub use index::CacheIndex;
pub use keys::block_keys;
pub use writer::CacheWriter;
