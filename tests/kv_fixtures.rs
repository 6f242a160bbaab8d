//! Recorded KV events decode to what the text beside them says.
//!
//! `vllm-0.32/events`: what an engine published (`.bin`), the same as its own decoder read it (`.jsonl`), and
//! its replay socket's answers. `kv-events-by-version`: one payload per layout and hash kind.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    io::BufRead,
    path::PathBuf,
    process::{Command, Stdio},
};

use bytes::Bytes;
use kinference::{
    ingest::kv::{decode::decode, wire},
    types::{EngineHash, ExtraKey, Group, KvEvent, StoredBlocks, Tier},
};
use serde_json::Value;

fn fixture(path: &str) -> Vec<u8> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read(root.join(path)).unwrap()
}

fn int(value: &Value) -> Option<EngineHash> {
    value.as_u64().map(EngineHash::Int)
}

fn text(value: &Value) -> Option<Box<str>> {
    value.as_str().map(Into::into)
}

fn number(value: &Value) -> Option<u32> {
    value.as_u64().map(|n| u32::try_from(n).unwrap())
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    value.as_array().unwrap().iter().map(|v| item(v).unwrap()).collect()
}

/// What the engine's own decoder printed, as our event.
fn event(json: &Value) -> KvEvent {
    if json["type"] == "AllBlocksCleared" {
        return KvEvent::Cleared;
    }
    assert_eq!(json["medium"], "GPU");
    let group = number(&json["group_idx"]);
    let hashes = list(&json["block_hashes"], int);
    match json["type"].as_str().unwrap() {
        "BlockRemoved" => KvEvent::Removed { hashes, tier: Tier::Gpu, group },
        "BlockStored" => {
            let texts = |keys: &Value| {
                Some(
                    keys.as_array()
                        .map_or(vec![], |k| k.iter().map(|k| ExtraKey::Text(text(k).unwrap())).collect()),
                )
            };
            let extra_keys: Vec<Vec<ExtraKey>> = list(&json["extra_keys"], texts);
            KvEvent::Stored(StoredBlocks {
                hashes,
                parent: int(&json["parent_block_hash"]),
                tokens: list(&json["token_ids"], number),
                block_size: number(&json["block_size"]).unwrap(),
                lora_id: json["lora_id"].as_i64(),
                lora_name: text(&json["lora_name"]),
                tier: Tier::Gpu,
                extra_keys: if extra_keys.iter().any(|own| !own.is_empty()) { extra_keys } else { vec![] },
                group: Group { index: group, kind: text(&json["kv_cache_spec_kind"]), sliding_window: None },
            })
        }
        other => panic!("the recording has no {other}"),
    }
}

#[test]
fn the_recorded_stream_decodes_to_its_text() {
    let messages = wire::recorded(fixture("vllm-0.32/events/v032.bin").into()).unwrap();
    let lines = String::from_utf8(fixture("vllm-0.32/events/v032.jsonl")).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(messages.len(), lines.len());
    assert_eq!(messages.len(), 29);
    for (frames, line) in messages.iter().zip(&lines) {
        let message = wire::numbered(frames).unwrap();
        let batch = decode(&message.payload).unwrap();
        assert_eq!(message.seq, line["seq"].as_u64().unwrap());
        assert_eq!(frames[0], line["topic"].as_str().unwrap());
        assert_eq!(batch.skipped, []);
        // The JSON reader rounds the last digit of a time otherwise.
        assert!((batch.ts - line["payload"][0].as_f64().unwrap()).abs() < 1e-6);
        assert_eq!(batch.rank, line["payload"][2].as_i64().map(|n| i32::try_from(n).unwrap()));
        let said: Vec<KvEvent> = line["payload"][1].as_array().unwrap().iter().map(event).collect();
        assert_eq!(batch.events, said, "seq {}", message.seq);
    }
}

fn replay(name: &str) -> Vec<wire::Numbered> {
    let hex = |text: &str| -> Bytes {
        (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
    };
    let json: Value = serde_json::from_slice(&fixture("vllm-0.32/events/v032.replay.json")).unwrap();
    let frames = |m: &Value| -> Vec<Bytes> {
        m.as_array().unwrap().iter().map(|frame| hex(frame.as_str().unwrap())).collect()
    };
    json[name].as_array().unwrap().iter().map(|m| wire::numbered(&frames(m)).unwrap()).collect()
}

#[test]
fn the_recorded_replay_says_what_was_live() {
    let live = wire::recorded(fixture("vllm-0.32/events/v032.bin").into()).unwrap();
    let live: Vec<wire::Numbered> = live.iter().map(|frames| wire::numbered(frames).unwrap()).collect();
    let mut all = replay("dealer_from_0");
    assert!(all.pop().unwrap().ends_replay());
    assert_eq!(all[0].seq, 0);
    assert_eq!(decode(&all[0].payload).unwrap().events.len(), 1);
    assert_eq!(all[1..], live);
    let mut tail = replay("dealer_from_20");
    assert!(tail.pop().unwrap().ends_replay());
    assert_eq!(tail, all[20..]);
    let beyond = replay("dealer_beyond_end");
    assert!(beyond.len() == 1 && beyond[0].ends_replay());
}

fn bytes_hash(from: u8) -> EngineHash {
    EngineHash::Bytes((from..from + 32).collect())
}

/// What was encoded for every version; `first` are its hashes, and what the version can say beyond tokens.
fn stored(first: Vec<EngineHash>, parent: Option<EngineHash>, says_keys: bool) -> KvEvent {
    KvEvent::Stored(StoredBlocks {
        hashes: first,
        parent,
        tokens: (1..=32).collect(),
        block_size: 16,
        extra_keys: if says_keys { vec![vec![ExtraKey::Text("salt".into())], vec![]] } else { vec![] },
        group: match says_keys {
            true => Group { index: Some(0), kind: Some("full_attention".into()), sliding_window: None },
            false => Group::default(),
        },
        ..StoredBlocks::default()
    })
}

#[test]
fn every_version_decodes_to_what_was_encoded() {
    for (version, says_keys) in
        [("0.10.2", false), ("0.16.0", false), ("0.23.0", true), ("0.24.0", true), ("0.32.0", true)]
    {
        let group = says_keys.then_some(0);
        let with_ints = decode(&fixture(&format!("kv-events-by-version/{version}-int.msgpack"))).unwrap();
        let ints = |a, b| vec![EngineHash::Int(a), EngineHash::Int(b)];
        let said = [
            stored(ints(17_293_822_569_102_704_641, 2), None, says_keys),
            stored(ints(3, 4), Some(EngineHash::Int(2)), false),
            KvEvent::Removed { hashes: vec![EngineHash::Int(2)], tier: Tier::Gpu, group },
            KvEvent::Cleared,
        ];
        assert_eq!(with_ints.events, said, "{version}");
        assert_eq!((with_ints.ts, with_ints.rank), (1_700_000_000.5, Some(0)));
        let with_bytes = decode(&fixture(&format!("kv-events-by-version/{version}-bytes.msgpack"))).unwrap();
        let said = [stored(vec![bytes_hash(0), bytes_hash(32)], Some(bytes_hash(0)), says_keys)];
        assert_eq!(with_bytes.events, said, "{version}");
        assert_eq!((with_bytes.ts, with_bytes.rank), (1_700_000_000.5, None));
        assert!(with_ints.skipped.is_empty() && with_bytes.skipped.is_empty(), "{version}");
    }
}

#[test]
fn kinfctl_prints_one_object_an_event() {
    let recording =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vllm-0.32/events/v032.bin");
    let run = || {
        let mut kinfctl = Command::new(env!("CARGO_BIN_EXE_kinfctl"));
        kinfctl.args(["events", "decode"]).arg(&recording);
        kinfctl
    };
    let printed = run().output().unwrap();
    assert!(printed.status.success());
    let printed: Vec<Value> =
        printed.stdout.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let lines = String::from_utf8(fixture("vllm-0.32/events/v032.jsonl")).unwrap();
    let said = lines.lines().flat_map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        let events = line["payload"][1].as_array().unwrap().clone();
        events.into_iter().map(move |event| (line["seq"].clone(), event))
    });
    let said: Vec<(Value, Value)> = said.collect();
    assert_eq!(printed.len(), said.len());
    for (line, (seq, event)) in printed.iter().zip(&said) {
        assert_eq!((&line["seq"], &line["type"]), (seq, &event["type"]));
        assert_eq!(line["tokens"], event["token_ids"]);
        assert_eq!(line["group"], event["group_idx"]);
        let decimal = event["block_hashes"].as_array().map(|h| h.iter().map(Value::to_string).collect());
        assert_eq!(line["block_hashes"], decimal.map_or(Value::Null, |h: Vec<String>| Value::from(h)));
    }
    // A reader that goes away is no failure.
    let mut cut = run().stdout(Stdio::piped()).spawn().unwrap();
    drop(cut.stdout.take());
    assert!(cut.wait().unwrap().success());
}
