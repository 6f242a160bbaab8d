//! One request inside the engine: its tokens, its blocks, and how far it has been computed.
//!
//! Invariants: `computed <= tokens.len()`; `blocks` cover `computed + scheduled` tokens; the first `stored` blocks are
//! full and in the prefix map.

use std::sync::Arc;

use super::{
    hash::{BlockHash, Salts, prompt_key},
    pool::BlockId,
};

/// A request's number, given by whoever submits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A request as it arrives.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Unique among the engine's requests.
    pub id: RequestId,
    /// At least one token.
    pub prompt: Vec<u32>,
    /// How many tokens to generate: exactly that many, at least one.
    pub max_tokens: u32,
    /// LoRA adapter and cache salt.
    pub salts: Salts,
}

/// The tokens that answers are made of.
#[derive(Clone, Debug)]
pub struct Vocabulary(Arc<[u32]>);

impl Vocabulary {
    /// `None` without tokens.
    pub fn new(tokens: &[u32]) -> Option<Self> {
        (!tokens.is_empty()).then(|| Self(tokens.into()))
    }

    /// Token `index` of the answer to the prompt with this key.
    pub fn token(&self, key: u64, index: u32) -> u32 {
        // One round of splitmix64: cheap, and neighbours look unrelated.
        let mut x = key.wrapping_add(u64::from(index).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 27;
        self.0[(x % self.0.len() as u64) as usize]
    }
}

/// A request that waits or runs.
#[derive(Clone, Debug)]
pub(super) struct Sequence {
    pub id: RequestId,
    /// Prompt and what has been generated.
    pub tokens: Vec<u32>,
    pub prompt_len: usize,
    pub max_tokens: u32,
    pub salts: Salts,
    /// One a full block of `tokens`.
    pub hashes: Vec<BlockHash>,
    pub blocks: Vec<BlockId>,
    /// Leading blocks whose hash is in the prefix map.
    pub stored: usize,
    /// Tokens whose KV exists, and those that the running step adds.
    pub computed: usize,
    pub scheduled: usize,
    /// Tokens of the prompt that were found in the cache at admission.
    pub cached: usize,
    key: u64,
}

impl Sequence {
    pub(super) fn new(arrival: Arrival, block_size: usize, root: BlockHash) -> Self {
        let mut sequence = Self {
            id: arrival.id,
            prompt_len: arrival.prompt.len(),
            max_tokens: arrival.max_tokens.max(1),
            salts: arrival.salts,
            hashes: Vec::with_capacity(arrival.prompt.len() / block_size),
            blocks: Vec::new(),
            stored: 0,
            computed: 0,
            scheduled: 0,
            cached: 0,
            key: prompt_key(&arrival.prompt),
            tokens: arrival.prompt,
        };
        sequence.extend_hashes(block_size, root);
        sequence
    }

    /// Hashes the blocks that have become full.
    pub(super) fn extend_hashes(&mut self, block_size: usize, root: BlockHash) {
        for index in self.hashes.len()..self.tokens.len() / block_size {
            let parent = self.hashes.last().copied().unwrap_or(root);
            let tokens = &self.tokens[index * block_size..(index + 1) * block_size];
            self.hashes.push(parent.next(tokens, &self.salts, index == 0));
        }
    }

    /// The hashes that a lookup may use: at least one token is always computed, so that there is something to sample from.
    pub(super) fn reusable(&self, block_size: usize) -> &[BlockHash] {
        &self.hashes[..(self.prompt_len - 1) / block_size]
    }

    /// Blocks that it needs from admission to end: the last generated token is never computed.
    pub(super) fn total_blocks(&self, block_size: usize) -> usize {
        (self.prompt_len + self.max_tokens as usize - 1).div_ceil(block_size)
    }

    pub(super) fn is_prefilling(&self) -> bool {
        self.computed < self.prompt_len
    }

    pub(super) fn generated(&self) -> u32 {
        (self.tokens.len() - self.prompt_len) as u32
    }

    /// Appends the next token of the answer.
    pub(super) fn sample(&mut self, vocabulary: &Vocabulary) -> u32 {
        let token = vocabulary.token(self.key, self.generated());
        self.tokens.push(token);
        token
    }
}
