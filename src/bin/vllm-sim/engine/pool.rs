//! The paged KV cache: physical blocks with reference counts, a prefix map, and LRU eviction.
//!
//! Invariants: a block is on the free list exactly when nothing refers to it; a free block keeps its contents until it is
//! handed out again; several blocks may hold the same hash. Block 0 is never handed out (vLLM's null block): here it
//! is the head of the free list's ring.

use std::collections::HashMap;

use super::hash::BlockHash;

/// Index of a physical block.
pub type BlockId = u32;

const RING: BlockId = 0;

#[derive(Clone, Debug, Default)]
struct Block {
    refs: u32,
    hash: Option<BlockHash>,
    prev: BlockId,
    next: BlockId,
}

/// All physical blocks of one engine.
#[derive(Clone, Debug)]
pub struct Pool {
    blocks: Vec<Block>,
    by_hash: HashMap<BlockHash, Vec<BlockId>>,
    free: u32,
}

impl Pool {
    /// `num_blocks` physical blocks, of which one is the null block.
    pub fn new(num_blocks: u32) -> Self {
        let mut pool =
            Self { blocks: vec![Block::default(); num_blocks as usize], by_hash: HashMap::new(), free: 0 };
        for id in 1..num_blocks {
            pool.push_free(id);
        }
        pool
    }

    /// Blocks that can be handed out.
    pub fn free(&self) -> u32 {
        self.free
    }

    /// Blocks in use.
    pub fn used(&self) -> u32 {
        self.capacity() - self.free
    }

    /// Blocks that can ever be handed out.
    pub fn capacity(&self) -> u32 {
        self.blocks.len() as u32 - 1
    }

    /// The blocks that hold the leading hashes of `hashes`.
    pub fn lookup(&self, hashes: &[BlockHash]) -> Vec<BlockId> {
        hashes.iter().map_while(|hash| self.by_hash.get(hash)?.first().copied()).collect()
    }

    /// How many of `ids` are free, i.e. would be taken from the free list by `hold`.
    pub fn count_free(&self, ids: &[BlockId]) -> u32 {
        ids.iter().filter(|&&id| self.blocks[id as usize].refs == 0).count() as u32
    }

    /// Takes a reference to a cached block.
    pub fn hold(&mut self, id: BlockId) {
        if self.blocks[id as usize].refs == 0 {
            self.unlink(id);
        }
        self.blocks[id as usize].refs += 1;
    }

    /// Hands out the least recently used free block, with the hash that is evicted by that.
    pub fn allocate(&mut self) -> Option<(BlockId, Option<BlockHash>)> {
        let id = self.blocks[RING as usize].next;
        if id == RING {
            return None;
        }
        self.unlink(id);
        self.blocks[id as usize].refs = 1;
        let evicted = self.blocks[id as usize].hash.take();
        if let Some(hash) = evicted {
            self.forget(hash, id);
        }
        Some((id, evicted))
    }

    /// Records that block `id` now holds the full block `hash`.
    pub fn store(&mut self, id: BlockId, hash: BlockHash) {
        self.blocks[id as usize].hash = Some(hash);
        self.by_hash.entry(hash).or_default().push(id);
    }

    /// Gives a reference back. The last one makes the block the most recently used free one.
    pub fn release(&mut self, id: BlockId) {
        let block = &mut self.blocks[id as usize];
        block.refs -= 1;
        if block.refs == 0 {
            self.push_free(id);
        }
    }

    /// Forgets all contents. Refused (`false`) while any block is in use.
    pub fn reset(&mut self) -> bool {
        if self.used() > 0 {
            return false;
        }
        self.by_hash.clear();
        for block in &mut self.blocks {
            block.hash = None;
        }
        true
    }

    fn forget(&mut self, hash: BlockHash, id: BlockId) {
        if let Some(copies) = self.by_hash.get_mut(&hash) {
            copies.retain(|&copy| copy != id);
            if copies.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
    }

    fn push_free(&mut self, id: BlockId) {
        let last = self.blocks[RING as usize].prev;
        self.blocks[last as usize].next = id;
        self.blocks[id as usize].prev = last;
        self.blocks[id as usize].next = RING;
        self.blocks[RING as usize].prev = id;
        self.free += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { prev, next, .. } = self.blocks[id as usize];
        self.blocks[prev as usize].next = next;
        self.blocks[next as usize].prev = prev;
        self.free -= 1;
    }
}
