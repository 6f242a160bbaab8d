//! Keys of prompts and keys of announced blocks are equal exactly where an engine's cache would serve one for the
//! other. The announcing side is written as vLLM does it: block by block, with its own list of extra keys.

use proptest::prelude::*;

use super::*;
use crate::types::{ExtraKey, ImageSpan};

/// What vLLM adds to the hash of the block `start..end`: adapter, items that touch it, salt on the first block.
fn extra_keys(prompt: &PromptTokens, start: usize) -> Vec<ExtraKey> {
    let end = start + BLOCK as usize;
    let text = |s: &Arc<str>| ExtraKey::Text((&**s).into());
    let mut keys: Vec<ExtraKey> = prompt.lora_name.iter().map(text).collect();
    for image in &prompt.images {
        if image.offset < end && image.offset + image.length > start {
            let offset = image.offset as i64 - start as i64;
            keys.push(ExtraKey::Image { hash: (&*image.hash).into(), offset });
        }
    }
    keys.extend(prompt.cache_salt.iter().filter(|_| start == 0).map(text));
    keys
}

/// The prompt's full blocks as events of at most `chunk` blocks; extra keys are left out where no block has any.
fn events(prompt: &PromptTokens, chunk: usize) -> Vec<KvEvent> {
    let size = BLOCK as usize;
    let full = prompt.ids.len() / size;
    let hash = |i: usize| EngineHash::Bytes((i as u64).to_be_bytes().into());
    (0..full)
        .step_by(chunk)
        .map(|from| {
            let range = from..full.min(from + chunk);
            let mut keys: Vec<_> = range.clone().map(|i| extra_keys(prompt, i * size)).collect();
            if keys.iter().all(Vec::is_empty) {
                keys.clear();
            }
            KvEvent::Stored(StoredBlocks {
                hashes: range.clone().map(hash).collect(),
                parent: from.checked_sub(1).map(hash),
                tokens: prompt.ids[range.start * size..range.end * size].to_vec(),
                block_size: BLOCK,
                lora_name: prompt.lora_name.as_deref().map(Into::into),
                extra_keys: keys,
                ..StoredBlocks::default()
            })
        })
        .collect()
}

/// Few values each, so that two prompts often share some.
fn any_prompt() -> impl Strategy<Value = PromptTokens> {
    let name = |p: f64| prop::option::weighted(p, prop_oneof![Just("a"), Just("b")]);
    let images = prop::collection::vec((0usize..24, 1usize..9, prop_oneof![Just("a"), Just("b")]), 0..3);
    let ids = prop::collection::vec(prop_oneof![30 => Just(7u32), 1 => Just(8)], 4..30);
    (ids, name(0.3), name(0.3), images).prop_map(|(ids, lora, salt, images)| PromptTokens {
        ids: ids.into(),
        lora_name: lora.map(Into::into),
        cache_salt: salt.map(Into::into),
        images: images
            .into_iter()
            .map(|(offset, length, hash)| ImageSpan { hash: hash.into(), offset, length })
            .collect(),
        credit_until: None,
    })
}

/// Leading blocks that an engine could serve `b` from what it has of `a`.
fn interchangeable(a: &PromptTokens, b: &PromptTokens) -> u32 {
    let size = BLOCK as usize;
    let block = |p: &PromptTokens, i: usize| -> Option<(Vec<u32>, Vec<String>)> {
        let ids = p.ids.get(i * size..(i + 1) * size)?.to_vec();
        let mut keys: Vec<String> = extra_keys(p, i * size).iter().map(|key| format!("{key:?}")).collect();
        let salt = p.cache_salt.clone().filter(|_| i == 0);
        keys.sort();
        keys.push(format!("{:?} {salt:?}", p.lora_name));
        Some((ids, keys))
    };
    (0..).take_while(|i| block(a, *i).is_some() && block(a, *i) == block(b, *i)).count() as u32
}

proptest! {
    #[test]
    fn keys_are_equal_where_blocks_are_interchangeable(
        stored in any_prompt(),
        mut asked in any_prompt(),
        chunk in 1usize..9,
        like in any::<[bool; 4]>(),
    ) {
        // Independent prompts seldom share their first block: take some parts over.
        if like[0] { asked.ids = stored.ids.clone(); }
        if like[1] { asked.lora_name = stored.lora_name.clone(); }
        if like[2] { asked.cache_salt = stored.cache_salt.clone(); }
        if like[3] { asked.images = stored.images.clone(); }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let index = index();
            let mut one = writer(&index, 1);
            for event in events(&stored, chunk) {
                assert!(matches!(one.apply(&event), Applied::Stored { .. }), "{event:?}");
            }
            assert_eq!(depths(&index, &stored).await.0, stored.ids.len() as u32 / BLOCK, "of itself");
            assert_eq!(depths(&index, &asked).await.0, interchangeable(&stored, &asked));
        });
    }
}
