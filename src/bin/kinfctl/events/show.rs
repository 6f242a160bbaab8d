//! KV events as people and programs see them: the cells of a table, and an object with the names of the engine.

use kinference::{
    ingest::kv::decode::Batch,
    types::{EngineHash, ExtraKey, KvEvent, StoredBlocks, Tier},
};
use serde_json::{Value, json};

use crate::output::{Cell, Column, Format, Stream, Tone};

const COLUMNS: &[Column] = &[
    Column::right("SEQ").least(8),
    Column::right("TIME").least(14),
    Column::right("RANK"),
    Column::left("EVENT").least(16),
    Column::left("MEDIUM"),
    Column::right("GROUP"),
    Column::right("BLOCKS"),
    Column::left("LAST BLOCK").least(20),
    Column::right("BLOCK SIZE"),
    Column::right("TOKENS"),
];

/// Prints events as they come.
pub struct Printer(Stream);

impl Printer {
    /// Nothing is printed yet.
    pub fn new(format: Format) -> Self {
        Self(Stream::new(format, COLUMNS))
    }

    /// Prints what a message holds.
    pub fn batch(&mut self, seq: Option<u64>, batch: &Batch) -> anyhow::Result<()> {
        let mut events = batch.events.iter();
        let mut skipped = batch.skipped.iter().peekable();
        for index in 0u32.. {
            let (kind, rest, cells) = match skipped.next_if(|skipped| skipped.index == index) {
                Some(skipped) => {
                    let reason = skipped.reason.label();
                    ("skipped", json!({ "reason": reason }), vec![Cell::toned(reason, Tone::Bad)])
                }
                None => match events.next() {
                    Some(event) => shown(event),
                    None => break,
                },
            };
            let mut fields = json!({ "seq": seq, "ts": batch.ts, "rank": batch.rank, "type": kind });
            if let (Value::Object(fields), Value::Object(rest)) = (&mut fields, rest) {
                fields.extend(rest);
            }
            let row = || {
                let head = [optional(seq), format!("{:.3}", batch.ts), optional(batch.rank), kind.to_owned()];
                head.into_iter().map(Cell::from).chain(cells).collect()
            };
            self.0.record(&fields, row)?;
        }
        Ok(())
    }

    /// Prints that a message could not be decoded.
    pub fn undecoded(&mut self, seq: Option<u64>, why: &str) -> anyhow::Result<()> {
        let row = || {
            let cells = [optional(seq), String::new(), String::new()].map(Cell::from);
            cells.into_iter().chain([Cell::toned(why, Tone::Bad)]).collect()
        };
        self.0.record(&json!({ "seq": seq, "error": why }), row)
    }
}

/// Its kind, its fields, and its cells.
fn shown(event: &KvEvent) -> (&'static str, Value, Vec<Cell>) {
    match event {
        KvEvent::Stored(blocks) => ("BlockStored", stored(blocks), stored_cells(blocks)),
        KvEvent::Removed { hashes, tier, group } => {
            let rest = json!({ "block_hashes": all(hashes), "medium": medium(tier), "group": group });
            ("BlockRemoved", rest, cells(tier, *group, hashes))
        }
        KvEvent::Cleared => ("AllBlocksCleared", json!({}), Vec::new()),
    }
}

/// Of any event that names blocks; what only stored ones have comes last.
fn cells(tier: &Tier, group: Option<u32>, hashes: &[EngineHash]) -> Vec<Cell> {
    let last = hashes.last().map(hash).unwrap_or_default();
    vec![medium(tier).into(), optional(group).into(), hashes.len().into(), last.into()]
}

fn stored_cells(blocks: &StoredBlocks) -> Vec<Cell> {
    let mut out = cells(&blocks.tier, blocks.group.index, &blocks.hashes);
    out.extend([blocks.block_size.into(), blocks.tokens.len().into()]);
    out
}

fn stored(blocks: &StoredBlocks) -> Value {
    let keys = blocks.extra_keys.iter().map(|own| own.iter().map(key).collect::<Vec<_>>());
    json!({
        "block_hashes": all(&blocks.hashes),
        "parent": blocks.parent.as_ref().map(hash),
        "tokens": blocks.tokens,
        "block_size": blocks.block_size,
        "lora_id": blocks.lora_id,
        "lora_name": blocks.lora_name,
        "medium": medium(&blocks.tier),
        "group": blocks.group.index,
        "group_kind": blocks.group.kind,
        "sliding_window": blocks.group.sliding_window,
        "extra_keys": keys.collect::<Vec<_>>(),
    })
}

/// Empty where it is not known.
fn optional(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

fn all(hashes: &[EngineHash]) -> Vec<String> {
    hashes.iter().map(hash).collect()
}

fn hash(hash: &EngineHash) -> String {
    match hash {
        EngineHash::Int(hash) => hash.to_string(),
        EngineHash::Bytes(hash) => hash.iter().map(|byte| format!("{byte:02x}")).collect(),
    }
}

fn medium(tier: &Tier) -> &str {
    match tier {
        Tier::Gpu => "GPU",
        Tier::Cpu => "CPU",
        Tier::Other(name) => name,
    }
}

fn key(key: &ExtraKey) -> Value {
    match key {
        ExtraKey::Text(text) => json!(text),
        ExtraKey::Image { hash, offset } => json!([hash, offset]),
        ExtraKey::Unknown => Value::Null,
    }
}
