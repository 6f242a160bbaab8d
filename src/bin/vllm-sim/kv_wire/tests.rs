//! The encoder against bytes that vLLM 0.32 sent: an event built from what the text beside a recording says must
//! come out as the recorded bytes.

use super::*;
use crate::engine::hash::Salts;

fn fixture(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/fixtures/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Payloads of the recording: each message is a count of frames, and length + bytes a frame.
fn recorded_payloads() -> Vec<Vec<u8>> {
    let bytes = fixture("vllm-0.32/events/v032.bin");
    let mut rest = bytes.as_slice();
    let number = |rest: &mut &[u8]| {
        let (head, tail) = rest.split_at(4);
        *rest = tail;
        u32::from_be_bytes(head.try_into().unwrap()) as usize
    };
    let mut payloads = Vec::new();
    while !rest.is_empty() {
        let frames = number(&mut rest);
        let mut last = Vec::new();
        for _ in 0..frames {
            let length = number(&mut rest);
            let (frame, tail) = rest.split_at(length);
            (last, rest) = (frame.to_vec(), tail);
        }
        payloads.push(last);
    }
    payloads
}

fn event_of(json: &serde_json::Value) -> Option<CacheEvent> {
    let hash = |value: &serde_json::Value| BlockHash(u128::from(value.as_u64().unwrap()));
    let hashes = || json["block_hashes"].as_array().unwrap().iter().map(hash).collect::<Vec<_>>();
    match json["type"].as_str().unwrap() {
        "AllBlocksCleared" => Some(CacheEvent::Cleared),
        "BlockRemoved" => Some(CacheEvent::Removed(hashes()[0])),
        // Only what asks for a session says so; the stand-in does not imitate that.
        _ if json.get("session_id").is_some() => None,
        _ => Some(CacheEvent::Stored(Stored {
            hashes: hashes(),
            parent: json["parent_block_hash"].as_u64().map(|hash| BlockHash(hash.into())),
            tokens: serde_json::from_value(json["token_ids"].clone()).unwrap(),
            salts: Salts { lora: None, cache_salt: json["extra_keys"][0][0].as_str().map(Into::into) },
        })),
    }
}

#[test]
fn recorded_batches_come_out_byte_for_byte() {
    let wire = Wire { hash: HashKind::Int, block_size: 32, rank: 0 };
    let text = String::from_utf8(fixture("vllm-0.32/events/v032.jsonl")).unwrap();
    let payloads = recorded_payloads();
    let mut compared = 0;
    for (line, recorded) in text.lines().zip(&payloads) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let payload = &line["payload"];
        let events: Option<Vec<_>> = payload[1].as_array().unwrap().iter().map(event_of).collect();
        let Some(events) = events else { continue };
        // From the bytes, after the array's and the number's marker: the text's decimals may round differently.
        let ts = f64::from_be_bytes(recorded[2..10].try_into().unwrap());
        let encoded = wire.encode(ts, &events).unwrap();
        assert!(&encoded == recorded, "batch {}", line["seq"]);
        compared += 1;
    }
    assert!(compared + 1 >= payloads.len() && compared > 20, "{compared} of {}", payloads.len());
}

#[test]
fn bytes_and_adapters_have_their_shape() {
    let wire = Wire { hash: HashKind::Bytes, block_size: 2, rank: 3 };
    let lora = crate::engine::hash::Lora { id: 1, name: "adapter-a".into() };
    let stored = Stored {
        hashes: vec![BlockHash(1), BlockHash(2)],
        parent: None,
        tokens: vec![1, 2, 3, 4],
        salts: Salts { lora: Some(lora), cache_salt: Some("t".into()) },
    };
    let bytes = wire.encode(1.5, &[CacheEvent::Stored(stored)]).unwrap();
    let batch = rmpv::decode::read_value(&mut bytes.as_slice()).unwrap();
    assert_eq!(batch[2].as_u64(), Some(3));
    let event = &batch[1][0];
    assert_eq!(event["block_hashes"][0].as_slice().unwrap().len(), 32);
    assert_eq!(event["block_hashes"][0].as_slice().unwrap()[31], 1);
    assert_eq!(event["lora_id"].as_u64(), Some(1));
    assert_eq!(event["lora_name"].as_str(), Some("adapter-a"));
    assert_eq!(event["extra_keys"].to_string(), r#"[["adapter-a", "t"], ["adapter-a"]]"#);
}
