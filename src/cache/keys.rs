//! Block keys of a prompt, made the same way as the keys of the blocks that engines announce.
//!
//! Invariant: equal keys if and only if an engine's prefix cache could serve one block for the other. An adapter
//! seeds every block's hash, `cache_salt` is folded into the first block, images into each block that they touch.

use std::collections::BTreeMap;

use dynamo_kv_router::protocols::{BlockHashOptions, compute_block_hash_for_seq, compute_next_seq_hash};

use super::salts::Salts;
use crate::types::{BlockHash, BlockKeys, PromptTokens, SequenceHash};

/// The keys of the full blocks of `prompt` that may earn credit, at `block_size` tokens a block: those that end
/// at or before `credit_until`.
pub fn block_keys(prompt: &PromptTokens, block_size: u32) -> BlockKeys {
    let tokens = prompt.ids.len();
    let size = block_size.max(1) as usize;
    let credited = prompt.credit_until.unwrap_or(tokens).min(tokens) / size;
    let contents = contents(&prompt.ids[..credited * size], block_size, prompt.lora_name.as_deref());
    let mut salts = salts(prompt, size, credited);
    let blocks: Vec<BlockHash> = contents
        .into_iter()
        .enumerate()
        .map(|(i, content)| salts.remove(&i).unwrap_or_default().fold(content))
        .collect();
    let mut parent = None;
    let sequence: Vec<SequenceHash> = blocks
        .iter()
        .map(|block| {
            let key = next(parent, *block);
            parent = Some(key);
            key
        })
        .collect();
    BlockKeys { block_size, tokens, blocks: blocks.into(), sequence: sequence.into() }
}

/// Hashes of the tokens of each full block, seeded by the adapter's name.
pub(super) fn contents(tokens: &[u32], block_size: u32, lora_name: Option<&str>) -> Vec<u64> {
    let options = BlockHashOptions { lora_name, ..BlockHashOptions::default() };
    compute_block_hash_for_seq(tokens, block_size, options).into_iter().map(|hash| hash.0).collect()
}

/// The running key of a block after `parent`.
pub(super) fn next(parent: Option<SequenceHash>, block: BlockHash) -> SequenceHash {
    let local = dynamo_kv_router::protocols::LocalBlockHash(block.0);
    SequenceHash(parent.map_or(block.0, |parent| compute_next_seq_hash(parent.0, local)))
}

/// The salts of each salted block among the first `blocks`. An item touches every block that one of its
/// placeholder tokens is in.
fn salts(prompt: &PromptTokens, size: usize, blocks: usize) -> BTreeMap<usize, Salts<'_>> {
    let mut out: BTreeMap<usize, Salts<'_>> = BTreeMap::new();
    if let Some(salt) = prompt.cache_salt.as_deref().filter(|salt| !salt.is_empty()) {
        out.entry(0).or_default().cache_salt = Some(salt);
    }
    for image in prompt.images.iter().filter(|image| image.length > 0) {
        let last = image.offset.saturating_add(image.length - 1) / size;
        for block in image.offset / size..=last.min(blocks.saturating_sub(1)) {
            let offset = image.offset as i64 - (block * size) as i64;
            out.entry(block).or_default().images.push((offset, &image.hash));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ImageSpan;

    fn prompt(tokens: u32) -> PromptTokens {
        PromptTokens { ids: (0..tokens).collect(), ..PromptTokens::default() }
    }

    /// Which of the first blocks have the same key in both.
    fn same(a: &PromptTokens, b: &PromptTokens) -> Vec<bool> {
        let (a, b) = (block_keys(a, 4), block_keys(b, 4));
        a.blocks.iter().zip(b.blocks.iter()).map(|(a, b)| a == b).collect()
    }

    #[test]
    fn partial_and_uncredited_blocks_have_no_key() {
        assert_eq!(block_keys(&prompt(11), 4).blocks.len(), 2);
        assert_eq!(block_keys(&prompt(11), 4).total_blocks(), 3);
        let cut = PromptTokens { credit_until: Some(7), ..prompt(11) };
        assert_eq!(block_keys(&cut, 4).blocks.len(), 1);
        assert_eq!(block_keys(&cut, 4).tokens, 11);
        assert_eq!(block_keys(&prompt(3), 4).blocks.len(), 0);
    }

    #[test]
    fn salts_mark_the_blocks_that_they_touch() {
        let plain = prompt(16);
        let salted = PromptTokens { cache_salt: Some("tenant".into()), ..prompt(16) };
        assert_eq!(same(&plain, &salted), [false, true, true, true]);
        assert!(
            block_keys(&plain, 4).sequence.iter().zip(&*block_keys(&salted, 4).sequence).all(|(a, b)| a != b)
        );
        let adapter = PromptTokens { lora_name: Some("a".into()), ..prompt(16) };
        assert_eq!(same(&plain, &adapter), [false; 4]);
        let span = |hash: &str| vec![ImageSpan { hash: hash.into(), offset: 6, length: 4 }];
        let image = PromptTokens { images: span("x"), ..prompt(16) };
        assert_eq!(same(&plain, &image), [true, false, false, true]);
        let other = PromptTokens { images: span("y"), ..prompt(16) };
        assert_eq!(same(&image, &other), [true, false, false, true]);
    }

    #[test]
    fn an_image_past_the_credited_blocks_marks_nothing() {
        let far = ImageSpan { hash: "x".into(), offset: 100, length: usize::MAX };
        assert_eq!(same(&prompt(16), &PromptTokens { images: vec![far], ..prompt(16) }), [true; 4]);
    }
}
