//! KV events as vLLM 0.32 writes them: msgpack maps with defaults left out, in an array `[ts, [events], rank]`.
//!
//! Owner of the bytes. Field order, and which fields are left out, follow recordings (see the tests).

use std::sync::Arc;

use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::engine::{CacheEvent, Stored, hash::BlockHash};

/// How hashes are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HashKind {
    /// 8 bytes as an unsigned integer.
    #[default]
    Int,
    /// 32 bytes.
    Bytes,
}

/// What all events of an engine have in common.
#[derive(Clone, Copy, Debug)]
pub struct Wire {
    /// How hashes are published.
    pub hash: HashKind,
    /// Tokens in a published block.
    pub block_size: usize,
    /// The data-parallel rank that publishes.
    pub rank: u32,
}

/// A hash on the wire.
#[derive(Clone, Debug)]
enum WireHash {
    Int(u64),
    Bytes([u8; 32]),
}

impl Serialize for WireHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(hash) => serializer.serialize_u64(*hash),
            Self::Bytes(hash) => serializer.serialize_bytes(hash),
        }
    }
}

#[derive(Serialize)]
struct BlockStored<'a> {
    r#type: &'static str,
    block_hashes: Vec<WireHash>,
    parent_block_hash: Option<WireHash>,
    token_ids: &'a [u32],
    block_size: usize,
    lora_id: Option<u32>,
    medium: &'static str,
    lora_name: Option<Arc<str>>,
    extra_keys: ExtraKeys<'a>,
    group_idx: u32,
    kv_cache_spec_kind: &'static str,
}

#[derive(Serialize)]
struct BlockRemoved {
    r#type: &'static str,
    block_hashes: [WireHash; 1],
    medium: &'static str,
    group_idx: u32,
}

#[derive(Serialize)]
struct AllBlocksCleared {
    r#type: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Event<'a> {
    Stored(BlockStored<'a>),
    Removed(BlockRemoved),
    Cleared(AllBlocksCleared),
}

/// A batch is a positional array, unlike its events; so it is a tuple.
type Batch<'a> = (f64, Vec<Event<'a>>, u32);

/// Per block its extra keys as a list, or nil.
struct ExtraKeys<'a>(&'a Stored);

impl Serialize for ExtraKeys<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Stored { hashes, parent, salts, .. } = self.0;
        let mut blocks = serializer.serialize_seq(Some(hashes.len()))?;
        for index in 0..hashes.len() {
            let keys: Vec<&str> = salts.of_block(index == 0 && parent.is_none()).collect();
            blocks.serialize_element(&(!keys.is_empty()).then_some(keys))?;
        }
        blocks.end()
    }
}

const MEDIUM: &str = "GPU";
const GROUP: u32 = 0;

impl Wire {
    /// The payload of one batch. `ts` is seconds since 1970.
    ///
    /// # Errors
    /// Only if the serializer fails, which it has no reason to.
    pub fn encode(&self, ts: f64, events: &[CacheEvent]) -> Result<Vec<u8>, rmp_serde::encode::Error> {
        let batch: Batch<'_> = (ts, events.iter().map(|event| self.event(event)).collect(), self.rank);
        let mut out = Vec::with_capacity(256);
        batch.serialize(&mut rmp_serde::Serializer::new(&mut out).with_struct_map())?;
        Ok(out)
    }

    fn event<'a>(&self, event: &'a CacheEvent) -> Event<'a> {
        match event {
            CacheEvent::Stored(stored) => Event::Stored(self.stored(stored)),
            CacheEvent::Removed(hash) => Event::Removed(BlockRemoved {
                r#type: "BlockRemoved",
                block_hashes: [self.hash(*hash)],
                medium: MEDIUM,
                group_idx: GROUP,
            }),
            CacheEvent::Cleared => Event::Cleared(AllBlocksCleared { r#type: "AllBlocksCleared" }),
        }
    }

    fn stored<'a>(&self, stored: &'a Stored) -> BlockStored<'a> {
        let lora = stored.salts.lora.as_ref();
        BlockStored {
            r#type: "BlockStored",
            block_hashes: stored.hashes.iter().map(|&hash| self.hash(hash)).collect(),
            parent_block_hash: stored.parent.map(|hash| self.hash(hash)),
            token_ids: &stored.tokens,
            block_size: self.block_size,
            lora_id: lora.map(|lora| lora.id),
            medium: MEDIUM,
            lora_name: lora.map(|lora| lora.name.clone()),
            extra_keys: ExtraKeys(stored),
            group_idx: GROUP,
            kv_cache_spec_kind: "full_attention",
        }
    }

    fn hash(&self, hash: BlockHash) -> WireHash {
        match self.hash {
            HashKind::Int => WireHash::Int(hash.int()),
            HashKind::Bytes => WireHash::Bytes(hash.bytes()),
        }
    }
}

#[cfg(test)]
mod tests;
