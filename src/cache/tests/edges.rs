//! Every known way in which engines and the index below surprise, one test each.
//!
//! What an engine or the tree did once must not cost or give credit again.

use super::*;
use crate::{
    cache::{BlockCounts, NoCreditReason},
    types::ExtraKey,
};

#[tokio::test]
async fn leading_blocks_are_found_and_absent_workers_are_not() {
    let index = index();
    let (mut one, mut two) = (writer(&index, 1), writer(&index, 2));
    assert_eq!(one.apply(&store(&[1, 2, 3], 0)), Applied::Stored { new: 3 });
    assert_eq!(two.apply(&store(&[1, 2], 0)), Applied::Stored { new: 2 });
    assert_eq!(one.apply(&store(&[1, 2, 3, 4], 3)), Applied::Stored { new: 1 });
    let found = overlaps(&index, &prompt(&[1, 2, 3, 4, 5])).await;
    let of = |n| Overlap { confirmed: n, any_tier: n, expected: n };
    assert_eq!(found, HashMap::from([(WorkerId(1), of(4)), (WorkerId(2), of(2))]));
    assert!(overlaps(&index, &prompt(&[2, 3])).await.is_empty(), "the same blocks elsewhere in a prompt");
    assert!(overlaps(&index, &prompt(&[])).await.is_empty());
    assert_eq!(index.blocks(WorkerId(1)), BlockCounts { gpu: 4, lower: 0 });
}

#[tokio::test]
async fn opaque_handles_of_both_kinds_link_chunks() {
    let index = index();
    let mut one = writer(&index, 1);
    let bytes = |n: u8| EngineHash::Bytes(vec![n; 32].into());
    let first = StoredBlocks { hashes: vec![bytes(1)], ..blocks(&[7], 0) };
    let second = StoredBlocks { hashes: vec![bytes(2)], parent: Some(bytes(1)), ..blocks(&[7, 8], 1) };
    one.apply(&KvEvent::Stored(first));
    assert_eq!(one.apply(&KvEvent::Stored(second)), Applied::Stored { new: 1 });
    assert_eq!(depths(&index, &prompt(&[7, 8])).await, (2, 2));
    assert_eq!(one.apply(&remove(vec![bytes(2)])), Applied::Removed { gone: 1 });
    assert_eq!(depths(&index, &prompt(&[7, 8])).await, (1, 1));
}

#[tokio::test]
async fn a_suffix_of_unknown_parents_is_dropped_and_known_again_after_its_head() {
    let index = index();
    let mut one = writer(&index, 1);
    assert_eq!(one.apply(&store(&[1, 2, 3], 1)), Applied::ParentUnknown);
    assert_eq!(one.apply(&store(&[1, 2, 3, 4], 3)), Applied::ParentUnknown, "nor does it become a parent");
    one.apply(&store(&[1], 0));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (1, 1));
    one.apply(&store(&[1, 2, 3], 1));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (3, 3));
}

#[tokio::test]
async fn each_copy_of_a_block_is_removed_on_its_own() {
    let index = index();
    let mut one = writer(&index, 1);
    one.apply(&store(&[1, 2], 0));
    assert_eq!(one.apply(&store(&[1, 2], 1)), Applied::Stored { new: 0 });
    assert_eq!(one.apply(&remove(handles(&[1, 2], 1))), Applied::Removed { gone: 0 });
    assert_eq!(depths(&index, &prompt(&[1, 2])).await, (2, 2));
    assert_eq!(one.apply(&remove(handles(&[1, 2], 1))), Applied::Removed { gone: 1 });
    assert_eq!(one.apply(&remove(handles(&[1, 2], 1))), Applied::Removed { gone: 0 }, "unknown by now");
    assert_eq!(depths(&index, &prompt(&[1, 2])).await, (1, 1));
}

#[tokio::test]
async fn a_hole_ends_the_prefix_until_it_is_filled() {
    let index = index();
    let mut one = writer(&index, 1);
    one.apply(&store(&[1, 2, 3, 4], 0));
    one.apply(&remove(vec![handle(&[1, 2])]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3, 4])).await, (1, 1));
    assert_eq!(index.blocks(WorkerId(1)).gpu, 3);
    one.apply(&KvEvent::Stored(StoredBlocks { parent: Some(handle(&[1])), ..blocks(&[1, 2], 1) }));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3, 4])).await, (4, 4));
}

#[tokio::test]
async fn a_late_event_does_not_bring_a_removed_worker_back() {
    let index = index();
    let mut old = writer(&index, 1);
    old.apply(&store(&[1], 0));
    index.remove_worker(WorkerId(1));
    assert_eq!(old.apply(&store(&[1, 2], 0)), Applied::Fenced);
    old.clear();
    assert!(overlaps(&index, &prompt(&[1, 2])).await.is_empty());
    assert_eq!(index.blocks(WorkerId(1)), BlockCounts::default());
}

#[tokio::test]
async fn a_new_writer_starts_empty_and_fences_the_old_one() {
    let index = index();
    let mut old = writer(&index, 1);
    let mut other_rank = index.writer(WorkerId(1), Rank(1), BLOCK);
    old.apply(&store(&[1, 2, 3], 0));
    other_rank.apply(&store(&[1], 0));
    let mut new = writer(&index, 1);
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (1, 1), "only the other rank's");
    new.apply(&store(&[1, 2], 0));
    assert_eq!(old.apply(&remove(handles(&[1, 2], 0))), Applied::Fenced);
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (2, 2), "the better rank's");
    new.clear();
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (1, 1));
}

#[tokio::test]
async fn a_wrong_block_size_is_an_answer() {
    let index = index();
    let mut one = writer(&index, 1);
    let event = StoredBlocks { block_size: 2, hashes: vec![handle(&[1]), handle(&[2])], ..blocks(&[1], 0) };
    assert_eq!(one.apply(&KvEvent::Stored(event.clone())), Applied::BlockSize { published: 2 });
    let sliding = StoredBlocks { group: group(1, "sliding_window"), ..event };
    assert_eq!(one.apply(&KvEvent::Stored(sliding)), Applied::NoCredit(NoCreditReason::Group));
    let odd = StoredBlocks { tokens: vec![1, 2, 3], ..blocks(&[1], 0) };
    assert_eq!(one.apply(&KvEvent::Stored(odd)), Applied::NoCredit(NoCreditReason::Tokens));
    assert!(overlaps(&index, &prompt(&[1])).await.is_empty());
}

#[tokio::test]
async fn tiers_own_their_copies() {
    let index = index();
    let mut one = writer(&index, 1);
    let on =
        |tier: &Tier, path: &[u32]| KvEvent::Stored(StoredBlocks { tier: tier.clone(), ..blocks(path, 0) });
    let off = |tier: &Tier, path: &[u32]| KvEvent::Removed {
        hashes: handles(path, 0),
        tier: tier.clone(),
        group: None,
    };
    let disk = Tier::Other("DISK".into());
    one.apply(&on(&Tier::Gpu, &[1, 2]));
    one.apply(&on(&Tier::Cpu, &[1, 2, 3]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (2, 3));
    assert_eq!(index.blocks(WorkerId(1)), BlockCounts { gpu: 2, lower: 3 });
    one.apply(&off(&Tier::Gpu, &[1, 2]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (0, 3));
    one.apply(&on(&disk, &[1]));
    one.apply(&off(&Tier::Cpu, &[1, 2, 3]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (0, 1));
    one.clear();
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (0, 0));
}

#[tokio::test]
async fn offloaded_blocks_are_known_by_their_handles() {
    let index = index();
    let mut one = writer(&index, 1);
    let known = StoredBlocks { group: group(0, "full_attention"), ..blocks(&[1, 2], 0) };
    one.apply(&KvEvent::Stored(known));
    let bare = |path: &[u32]| StoredBlocks {
        parent: None,
        tokens: vec![],
        block_size: 64,
        tier: Tier::Cpu,
        ..blocks(path, 0)
    };
    assert_eq!(one.apply(&KvEvent::Stored(bare(&[1, 2]))), Applied::Stored { new: 2 });
    assert_eq!(one.apply(&KvEvent::Stored(bare(&[9]))), Applied::ParentUnknown);
    one.apply(&KvEvent::Removed { hashes: handles(&[1, 2], 0), tier: Tier::Gpu, group: Some(0) });
    assert_eq!(depths(&index, &prompt(&[1, 2])).await, (0, 2));
    one.apply(&KvEvent::Removed { hashes: handles(&[1, 2], 1), tier: Tier::Cpu, group: None });
    assert_eq!(depths(&index, &prompt(&[1, 2])).await, (0, 1));
}

#[tokio::test]
async fn only_what_all_full_attention_groups_hold_counts() {
    let index = index();
    let mut one = writer(&index, 1);
    let of =
        |i, kind, path: &[u32]| KvEvent::Stored(StoredBlocks { group: group(i, kind), ..blocks(path, 0) });
    one.apply(&of(2, "sliding_window", &[1, 2, 3]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (0, 0));
    one.apply(&of(0, "full_attention", &[1, 2, 3]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (3, 3));
    one.apply(&of(1, "mla_attention", &[1]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (1, 1));
    one.apply(&of(1, "mla_attention", &[1, 2]));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (2, 2));
    one.apply(&KvEvent::Removed { hashes: vec![handle(&[1, 2])], tier: Tier::Gpu, group: Some(0) });
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (1, 1));
    one.apply(&KvEvent::Removed { hashes: handles(&[1, 2, 3], 0), tier: Tier::Gpu, group: Some(2) });
    assert_eq!(depths(&index, &prompt(&[1, 2, 3])).await, (1, 1), "a window's end is none of its business");
}

#[tokio::test]
async fn what_salts_a_block_beyond_knowing_earns_nothing_nor_do_its_followers() {
    let index = index();
    let mut one = writer(&index, 1);
    let mut event = blocks(&[1, 2, 3], 0);
    event.extra_keys = vec![vec![], vec![ExtraKey::Text("digest".into())], vec![]];
    assert_eq!(one.apply(&KvEvent::Stored(event)), Applied::NoCredit(NoCreditReason::UnknownSalt));
    assert_eq!(one.apply(&store(&[1, 2, 3, 4], 3)), Applied::NoCredit(NoCreditReason::Parent));
    assert_eq!(depths(&index, &prompt(&[1, 2, 3, 4])).await, (1, 1));
    assert_eq!(one.apply(&remove(handles(&[1, 2, 3, 4], 0))), Applied::Removed { gone: 4 });
    let numbered = StoredBlocks { lora_id: Some(3), ..blocks(&[1], 0) };
    assert_eq!(one.apply(&KvEvent::Stored(numbered)), Applied::NoCredit(NoCreditReason::UnnamedLora));
    assert_eq!(depths(&index, &prompt(&[1])).await, (0, 0));
}

#[tokio::test]
async fn a_handle_that_comes_to_mean_another_block_means_the_last_one() {
    let index = index();
    let mut one = writer(&index, 1);
    let as_handle = |hash: &EngineHash, path: &[u32]| {
        KvEvent::Stored(StoredBlocks { hashes: vec![hash.clone()], ..blocks(path, 0) })
    };
    let (a, b) = (handle(&[1]), handle(&[2]));
    one.apply(&as_handle(&a, &[1]));
    one.apply(&as_handle(&b, &[1]));
    one.apply(&as_handle(&a, &[2]));
    assert_eq!(depths(&index, &prompt(&[1])).await, (1, 1), "the other handle still means it");
    assert_eq!(depths(&index, &prompt(&[2])).await, (1, 1));
    one.apply(&remove(vec![b]));
    assert_eq!(depths(&index, &prompt(&[1])).await, (0, 0));
    one.apply(&remove(vec![a]));
    assert_eq!(depths(&index, &prompt(&[2])).await, (0, 0));
}

#[tokio::test]
async fn more_tiers_than_are_told_apart_earn_nothing() {
    let index = index();
    let mut one = writer(&index, 1);
    let mut answers = Vec::new();
    for i in 0..40 {
        let tier = Tier::Other(format!("T{i}").into());
        answers.push(one.apply(&KvEvent::Stored(StoredBlocks { tier, ..blocks(&[1], 0) })));
    }
    assert_eq!(answers.iter().filter(|a| **a == Applied::Stored { new: 1 }).count(), 32);
    assert_eq!(answers.last(), Some(&Applied::NoCredit(NoCreditReason::TooManyTiers)));
}
