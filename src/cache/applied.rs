//! What became of an event, and what a worker holds: the room's answers to those who write.
//!
//! Plain values. Counts in blocks.

/// What [`super::CacheWriter::apply`] made of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// All its blocks are known.
    Stored {
        /// Those that were not there before; the others are further copies.
        new: usize,
    },
    /// Copies went away.
    Removed {
        /// Blocks whose last copy on the tier went.
        gone: usize,
    },
    /// Everything that the rank held is forgotten.
    Cleared,
    /// The block before the first one is not known (it was announced before we listened): nothing is stored.
    ParentUnknown,
    /// All or the later ones of its blocks earn no credit.
    NoCredit(NoCreditReason),
    /// Blocks of another size than the worker set's: nothing is stored, and the worker is of no use.
    BlockSize {
        /// Tokens in a block, as the engine publishes them.
        published: u32,
    },
    /// A newer writer of the same rank took over, or the worker is gone: nothing is stored.
    Fenced,
}

impl Applied {
    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Stored { .. } => "stored",
            Self::Removed { .. } => "removed",
            Self::Cleared => "cleared",
            Self::ParentUnknown => "parent_unknown",
            Self::NoCredit(_) => "no_credit",
            Self::BlockSize { .. } => "block_size",
            Self::Fenced => "fenced",
        }
    }
}

/// Why blocks earn no credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoCreditReason {
    /// Something salts a block that no prompt can be compared with.
    UnknownSalt,
    /// An adapter without a name: engines before vLLM 0.14.1 number them only.
    UnnamedLora,
    /// They follow a block without credit.
    Parent,
    /// Their group is not one of full attention.
    Group,
    /// Tokens and hashes do not match in number.
    Tokens,
    /// The rank uses more groups and tiers than are told apart.
    TooManyTiers,
    /// The rank holds more blocks than can be numbered.
    Full,
}

impl NoCreditReason {
    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::UnknownSalt => "unknown_salt",
            Self::UnnamedLora => "unnamed_lora",
            Self::Parent => "parent",
            Self::Group => "group",
            Self::Tokens => "tokens",
            Self::TooManyTiers => "too_many_tiers",
            Self::Full => "full",
        }
    }
}

/// Distinct blocks that a worker holds and that can earn credit. One on two tiers is counted in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BlockCounts {
    /// In accelerator memory.
    pub gpu: usize,
    /// On lower tiers.
    pub lower: usize,
}
