//! Block hashes: a chain over token ids, so that equal hashes mean equal prefixes under equal salts.
//!
//! Invariant: a hash depends on the root (the engine's seed), on every token up to the block's end, and on the
//! extra keys of every block up to it. Routers must treat it as opaque, as with a real engine.

use std::sync::Arc;

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// A block's identity inside the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BlockHash(pub u128);

impl BlockHash {
    /// What the first block of every prompt is chained to: differs between engines with different seeds.
    pub fn root(seed: u64) -> Self {
        Self(xxh3_128_with_seed(b"root", seed))
    }

    /// The hash of the block of `tokens` that follows this one.
    pub fn next(self, tokens: &[u32], salts: &Salts, first: bool) -> Self {
        let mut bytes = Vec::with_capacity(16 + tokens.len() * 4 + 16);
        bytes.extend_from_slice(&self.0.to_le_bytes());
        for token in tokens {
            bytes.extend_from_slice(&token.to_le_bytes());
        }
        for text in salts.of_block(first) {
            bytes.push(0xff);
            bytes.extend_from_slice(text.as_bytes());
        }
        Self(xxh3_128_with_seed(&bytes, 0))
    }

    /// The 8-byte form that engines publish by default.
    pub fn int(self) -> u64 {
        (self.0 & u128::from(u64::MAX)) as u64
    }

    /// The 32-byte form.
    pub fn bytes(self) -> [u8; 32] {
        let mut out = [0; 32];
        out[..16].copy_from_slice(&xxh3_128_with_seed(&self.0.to_be_bytes(), 1).to_be_bytes());
        out[16..].copy_from_slice(&self.0.to_be_bytes());
        out
    }
}

/// What a request's block hashes hold beyond tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Salts {
    /// The LoRA adapter, which salts every block.
    pub lora: Option<Lora>,
    /// The request's `cache_salt`, which salts the first block (and through the chain all others).
    pub cache_salt: Option<Arc<str>>,
}

/// A LoRA adapter as events name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lora {
    /// From 1, in the order of the command line.
    pub id: u32,
    /// The model name that requests ask for.
    pub name: Arc<str>,
}

impl Salts {
    /// The extra keys of one block, in the order in which they are published.
    pub fn of_block(&self, first: bool) -> impl Iterator<Item = &str> {
        let lora = self.lora.as_ref().map(|lora| lora.name.as_ref());
        lora.into_iter().chain(self.cache_salt.as_deref().filter(|_| first))
    }
}

/// A number that depends on a prompt alone: what the generated text is drawn from, so that all engines of a
/// model answer alike.
pub fn prompt_key(tokens: &[u32]) -> u64 {
    let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
    xxh3_64_with_seed(&bytes, 0)
}
