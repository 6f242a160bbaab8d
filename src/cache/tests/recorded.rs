//! A recorded session of a real engine: everything that it stores is found, down to the block, when it is stored.
//!
//! Reads the recording's JSON form, which is enough for one version; the decoder of bytes has tests of its own.

use serde_json::Value;

use super::*;
use crate::types::ExtraKey;

const RECORDED_BLOCK: u32 = 32;

fn hashes(value: &Value) -> Vec<EngineHash> {
    value.as_array().unwrap().iter().map(|hash| EngineHash::Int(hash.as_u64().unwrap())).collect()
}

fn stored(event: &Value) -> StoredBlocks {
    let text = |key: &Value| ExtraKey::Text(key.as_str().unwrap().into());
    let keys = |keys: &Value| keys.as_array().map(|keys| keys.iter().map(text).collect()).unwrap_or_default();
    StoredBlocks {
        hashes: hashes(&event["block_hashes"]),
        parent: event["parent_block_hash"].as_u64().map(EngineHash::Int),
        tokens: event["token_ids"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect(),
        block_size: event["block_size"].as_u64().unwrap() as u32,
        lora_name: event["lora_name"].as_str().map(Into::into),
        extra_keys: event["extra_keys"]
            .as_array()
            .map(|all| all.iter().map(keys).collect())
            .unwrap_or_default(),
        group: group(
            event["group_idx"].as_u64().unwrap() as u32,
            event["kv_cache_spec_kind"].as_str().unwrap(),
        ),
        ..StoredBlocks::default()
    }
}

/// What the handles of the session mean: the whole prompt up to and with the block.
#[derive(Default)]
struct Prompts(HashMap<EngineHash, PromptTokens>);

impl Prompts {
    fn add(&mut self, event: &StoredBlocks) -> PromptTokens {
        let mut prompt = event.parent.as_ref().map(|parent| self.0[parent].clone()).unwrap_or_default();
        if let Some([ExtraKey::Text(salt)]) = event.extra_keys.first().map(Vec::as_slice) {
            prompt.cache_salt = Some((&**salt).into());
        }
        for (hash, block) in event.hashes.iter().zip(event.tokens.chunks(RECORDED_BLOCK as usize)) {
            prompt.ids = prompt.ids.iter().chain(block).copied().collect();
            self.0.insert(hash.clone(), prompt.clone());
        }
        prompt
    }
}

#[tokio::test]
async fn a_recorded_session_is_followed() {
    let recording = include_str!("../../../tests/fixtures/vllm-0.32/events/v032.jsonl");
    let index = index();
    let mut one = index.writer(WorkerId(1), Rank(0), RECORDED_BLOCK);
    let (mut prompts, mut salted, mut kinds) = (Prompts::default(), 0, [0; 3]);
    let batches = recording.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for event in batches.flat_map(|batch| batch["payload"][1].as_array().cloned().unwrap_or_default()) {
        match event["type"].as_str().unwrap() {
            "BlockStored" => {
                let event = stored(&event);
                let prompt = prompts.add(&event);
                let keys = block_keys(&prompt, RECORDED_BLOCK);
                if prompt.cache_salt.is_some() {
                    salted += 1;
                    assert!(index.overlap(&keys).is_empty(), "the same tokens are there without the salt");
                }
                assert!(matches!(one.apply(&KvEvent::Stored(event)), Applied::Stored { .. }));
                index.settled().await;
                assert_eq!(index.overlap(&keys)[&WorkerId(1)].confirmed as usize, keys.blocks.len());
                kinds[0] += 1;
            }
            "BlockRemoved" => {
                let group = event["group_idx"].as_u64().map(|group| group as u32);
                let event =
                    KvEvent::Removed { hashes: hashes(&event["block_hashes"]), tier: Tier::Gpu, group };
                assert!(matches!(one.apply(&event), Applied::Removed { .. }));
                kinds[1] += 1;
            }
            _ => {
                one.clear();
                assert_eq!(index.blocks(WorkerId(1)).gpu, 0);
                kinds[2] += 1;
            }
        }
    }
    assert_eq!((kinds, salted), ([29, 357, 1], 1));
    assert_eq!(index.blocks(WorkerId(1)).gpu, 398, "what stores and removals of the recording leave");
}
