//! A prompt as the engine will see it: token ids, what salts its KV blocks, and the block keys made of both.
//!
//! Invariant: two prompts have equal `SequenceHash` at block i only if their first i+1 blocks are
//! interchangeable in an engine's prefix cache (same tokens, same salts).

use std::sync::Arc;

/// The key of one block by its own content (tokens and salts), not its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u64);

/// The key of a block and everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SequenceHash(pub u64);

/// One prompt, tokenized. Several prompts in one request are routed by the longest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PromptTokens {
    /// Exactly the ids that the engine will see.
    pub ids: Arc<[u32]>,
    /// The LoRA adapter that the request names, if it is one: salts every block.
    pub lora_name: Option<Arc<str>>,
    /// `cache_salt` of the request: salts the first block.
    pub cache_salt: Option<Arc<str>>,
    /// Multimodal items in order: (engine's hash, first token, tokens).
    pub images: Vec<ImageSpan>,
    /// Tokens from here on earn no cache credit, because what salts them is not known.
    pub credit_until: Option<usize>,
}

/// A multimodal item inside a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSpan {
    /// The engine's own hash of the item, as render reports it.
    pub hash: Arc<str>,
    /// First placeholder token.
    pub offset: usize,
    /// Number of placeholder tokens.
    pub length: usize,
}

/// The keys of a prompt's full blocks at one block size. A trailing partial block has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockKeys {
    /// Tokens in a block.
    pub block_size: u32,
    /// Tokens of the prompt, the partial block's included.
    pub tokens: usize,
    /// Content keys of the full blocks that may earn credit.
    pub blocks: Arc<[BlockHash]>,
    /// Running keys, one for each of `blocks`.
    pub sequence: Arc<[SequenceHash]>,
}

impl BlockKeys {
    /// Blocks that the prompt takes up: ceil(tokens / block size).
    pub fn total_blocks(&self) -> usize {
        self.tokens.div_ceil(self.block_size.max(1) as usize)
    }
}
