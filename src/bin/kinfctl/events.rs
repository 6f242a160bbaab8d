//! `kinfctl events`: tail an engine's KV events, or decode recorded ones.
//!
//! Output: one JSON object an event on stdout.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::Bytes;
use kinference::{
    ingest::kv::{
        connection::Connection,
        decode::{Batch, decode},
        replay::{Replay, Replayed},
        wire::{self, Numbered},
    },
    types::{EngineHash, ExtraKey, KvEvent, StoredBlocks, Tier},
};
use serde_json::{Value, json};

use crate::output::print;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Prints what an engine publishes, until interrupted.
    Tail {
        /// Its PUB socket, e.g. `tcp://127.0.0.1:5557`
        endpoint: String,
        /// Its replay socket: prints first what it still has.
        #[arg(long, value_name = "ENDPOINT")]
        replay: Option<String>,
    },
    /// Prints what files hold: a bare payload, or a recording of messages.
    Decode {
        /// Files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
}

/// Runs the command.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        Command::Tail { endpoint, replay } => tail(&endpoint, replay).await,
        Command::Decode { files } => files.iter().try_for_each(|file| decode_file(file)),
    }
}

async fn tail(endpoint: &str, replay: Option<String>) -> anyhow::Result<()> {
    // Subscribed before the replay, so that nothing falls between.
    let unreachable = || format!("cannot subscribe to {endpoint}");
    let mut connection = Connection::dial(endpoint).await.with_context(unreachable)?;
    let mut replayed = None;
    if let Some(replay) = replay {
        let mut replay = Replay::start(replay, 0);
        loop {
            match replay.next().await {
                Replayed::Batch(message) => {
                    replayed = Some(message.seq);
                    print_message(&message)?;
                }
                Replayed::End => break,
                Replayed::Failed(error) => return Err(error.into()),
            }
        }
    }
    while let Some(frames) = connection.next().await {
        match wire::numbered(&frames) {
            // The replay had it.
            Ok(message) if replayed.is_some_and(|last| message.seq <= last) => {}
            Ok(message) => {
                replayed = None;
                print_message(&message)?;
            }
            Err(error) => print(&json!({ "seq": null, "error": error.to_string() }))?,
        }
    }
    bail!("the engine closed the connection")
}

fn decode_file(file: &Path) -> anyhow::Result<()> {
    let name = || file.display().to_string();
    let bytes = Bytes::from(std::fs::read(file).with_context(name)?);
    // A payload begins with an array; a recording with a frame count far below 2^24.
    if bytes.first() != Some(&0) {
        let batch = decode(&bytes).with_context(name)?;
        return print_batch(None, &batch);
    }
    for frames in wire::recorded(bytes).with_context(name)? {
        print_message(&wire::numbered(&frames).with_context(name)?)?;
    }
    Ok(())
}

fn print_message(message: &Numbered) -> anyhow::Result<()> {
    if message.ends_replay() {
        return Ok(());
    }
    match decode(&message.payload) {
        Ok(batch) => print_batch(Some(message.seq), &batch),
        Err(error) => print(&json!({ "seq": message.seq, "error": error.to_string() })),
    }
}

fn print_batch(seq: Option<u64>, batch: &Batch) -> anyhow::Result<()> {
    let head = |kind: &str| json!({ "seq": seq, "ts": batch.ts, "rank": batch.rank, "type": kind });
    let mut events = batch.events.iter();
    let mut skipped = batch.skipped.iter().peekable();
    for index in 0u32.. {
        let (mut line, rest) = match skipped.next_if(|skipped| skipped.index == index) {
            Some(skipped) => (head("skipped"), json!({ "reason": skipped.reason.label() })),
            None => match events.next() {
                Some(KvEvent::Stored(blocks)) => (head("BlockStored"), stored(blocks)),
                Some(KvEvent::Removed { hashes, tier, group }) => {
                    let rest = json!({ "block_hashes": all(hashes), "medium": medium(tier), "group": group });
                    (head("BlockRemoved"), rest)
                }
                Some(KvEvent::Cleared) => (head("AllBlocksCleared"), json!({})),
                None => break,
            },
        };
        if let (Value::Object(line), Value::Object(rest)) = (&mut line, rest) {
            line.extend(rest);
        }
        print(&line)?;
    }
    Ok(())
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
