//! Which blocks each worker holds, and the block keys that say so. Over `dynamo-kv-router`'s radix tree.
//!
//! One [`CacheWriter`] a subscription (worker, rank) feeds that rank's ledger, which counts copies by the engine's
//! handles; only blocks held together with all before them reach the tree that [`CacheIndex::overlap`] walks.
//! Invariant: nothing is credited on a guess. Sizes in tokens and blocks. Decisions are told at [`CacheWriter`].

mod applied;
mod chain;
mod change;
mod desk;
mod index;
mod instruments;
mod keyed;
mod keys;
mod ledger;
mod maintain;
mod places;
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
