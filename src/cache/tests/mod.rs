//! Tests of the room as a whole, with what they share: events and prompts made of small numbers.
//!
//! A block of content `c` at 4 tokens a block is the tokens `4c..4c+4`; engine handles are made from whole paths.

mod edges;
mod model;
mod recorded;
mod salts;
mod upkeep;

use std::{collections::HashMap, sync::Arc};

use super::{Applied, CacheIndex, CacheWriter, block_keys};
use crate::{
    observe::Metrics,
    types::{EngineHash, Group, KvEvent, Overlap, PromptTokens, Rank, StoredBlocks, Tier, WorkerId},
};

const BLOCK: u32 = 4;

fn index() -> Arc<CacheIndex> {
    CacheIndex::new(&Metrics::new())
}

fn writer(index: &Arc<CacheIndex>, worker: u64) -> CacheWriter {
    index.writer(WorkerId(worker), Rank(0), BLOCK)
}

fn tokens(path: &[u32]) -> Vec<u32> {
    path.iter().flat_map(|c| c * BLOCK..(c + 1) * BLOCK).collect()
}

fn prompt(path: &[u32]) -> PromptTokens {
    PromptTokens { ids: tokens(path).into(), ..PromptTokens::default() }
}

/// The engine's handle of the last block of a path.
fn handle(path: &[u32]) -> EngineHash {
    EngineHash::Int(
        path.iter().fold(17u64, |hash, c| hash.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(*c)),
    )
}

fn handles(path: &[u32], from: usize) -> Vec<EngineHash> {
    (from..path.len()).map(|i| handle(&path[..=i])).collect()
}

/// The blocks of `path` from `from` on, as the engine announces them.
fn blocks(path: &[u32], from: usize) -> StoredBlocks {
    StoredBlocks {
        hashes: handles(path, from),
        parent: (from > 0).then(|| handle(&path[..from])),
        tokens: tokens(&path[from..]),
        block_size: BLOCK,
        ..StoredBlocks::default()
    }
}

fn store(path: &[u32], from: usize) -> KvEvent {
    KvEvent::Stored(blocks(path, from))
}

fn remove(hashes: Vec<EngineHash>) -> KvEvent {
    KvEvent::Removed { hashes, tier: Tier::Gpu, group: None }
}

fn group(index: u32, kind: &str) -> Group {
    Group { index: Some(index), kind: Some(kind.into()), sliding_window: None }
}

async fn overlaps(index: &CacheIndex, prompt: &PromptTokens) -> HashMap<WorkerId, Overlap> {
    index.settled().await;
    index.overlap(&block_keys(prompt, BLOCK))
}

/// (on the accelerator, on any tier) of a prompt on worker 1.
async fn depths(index: &CacheIndex, prompt: &PromptTokens) -> (u32, u32) {
    let overlap = overlaps(index, prompt).await.get(&WorkerId(1)).copied().unwrap_or_default();
    assert_eq!(overlap.expected, overlap.confirmed);
    (overlap.confirmed, overlap.any_tier)
}
