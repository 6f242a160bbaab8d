//! A KV-cache event as an engine published it, whatever the encoding and version.
//!
//! Engine hashes are opaque handles: compared, never interpreted. Token ids are what our own keys are made of.

/// The engine's handle of a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EngineHash {
    /// The low 8 bytes of a hash: vLLM's default.
    Int(u64),
    /// A whole hash.
    Bytes(Box<[u8]>),
}

/// Where a block is stored, from the event's `medium`. Absent means the accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// Accelerator memory.
    #[default]
    Gpu,
    /// Host memory.
    Cpu,
    /// Anything else, by its name in the event.
    Other(Box<str>),
}

/// What an `extra_keys` entry of one block is, told apart by its shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ExtraKey {
    /// A bare string: LoRA name, `cache_salt`, or a digest of prompt embeddings.
    Text(Box<str>),
    /// A multimodal item: hash, and its offset in tokens relative to the block's start.
    Image {
        /// The engine's hash.
        hash: Box<str>,
        /// Tokens from the start of the block; negative when it began in an earlier one.
        offset: i64,
    },
    /// A shape that we do not know: the block can't be reproduced and earns no credit.
    Unknown,
}

/// The KV-cache group that blocks belong to; engines of one attention kind have one group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Group {
    /// `group_idx`
    pub index: Option<u32>,
    /// `kv_cache_spec_kind`, e.g. `full_attention`.
    pub kind: Option<Box<str>>,
    /// `kv_cache_spec_sliding_window`, tokens.
    pub sliding_window: Option<u32>,
}

impl Group {
    /// Whether blocks of this group give credit: those of full attention, or of an engine that does not say.
    pub fn is_full_attention(&self) -> bool {
        self.kind.as_deref().is_none_or(|kind| kind.contains("full_attention") || kind.contains("mla"))
    }
}

/// `BlockStored`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredBlocks {
    /// One handle a block, in order.
    pub hashes: Vec<EngineHash>,
    /// The block before the first one.
    pub parent: Option<EngineHash>,
    /// `hashes.len() * block_size` token ids.
    pub tokens: Vec<u32>,
    /// Tokens in a block, of this group.
    pub block_size: u32,
    /// LoRA adapter by number (before 0.14.1 the only sign of one).
    pub lora_id: Option<i64>,
    /// LoRA adapter by name.
    pub lora_name: Option<Box<str>>,
    /// Storage tier.
    pub tier: Tier,
    /// For each block, what salts its hash beyond tokens; empty when no block has any.
    pub extra_keys: Vec<Vec<ExtraKey>>,
    /// KV-cache group.
    pub group: Group,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// Blocks became available.
    Stored(StoredBlocks),
    /// Blocks went away, one copy each.
    Removed {
        /// Their handles.
        hashes: Vec<EngineHash>,
        /// From which tier.
        tier: Tier,
        /// From which group.
        group: Option<u32>,
    },
    /// The whole cache was reset.
    Cleared,
}
