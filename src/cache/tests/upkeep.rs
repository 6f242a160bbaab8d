//! Wear and its cure, and writers that are far ahead.
//!
//! Trees are rebuilt under writes, and die; what readers find stays what ranks hold.

use std::time::Duration;

use super::*;

/// Branches off a live chain that came and went: the tree splits for each and never joins again.
fn wear(one: &mut CacheWriter, chain: &[u32]) {
    one.apply(&store(chain, 0));
    for i in 1..chain.len() {
        let branch: Vec<u32> = chain[..i].iter().copied().chain([100, 101, 102, 103, 104]).collect();
        one.apply(&store(&branch, i));
        one.apply(&remove(handles(&branch, i).into_iter().rev().collect()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worn_tree_is_built_anew_while_it_is_written() {
    let metrics = Metrics::new();
    let index = CacheIndex::new(&metrics);
    let (mut one, mut two) = (writer(&index, 1), writer(&index, 2));
    let stale = writer(&index, 3); // keeps its desk beyond its worker
    index.remove_worker(WorkerId(3));
    let chain: Vec<u32> = (1..1000).collect();
    wear(&mut one, &chain);
    two.apply(&store(&chain[..10], 0));
    assert!(index.registry.lock().trees.current.is_worn());

    let upkeep = Arc::clone(&index).maintain();
    let writing = async {
        let rebuilt = || metrics.render().contains("kinference_cache_rebuilds_total 1");
        for i in 11..500 {
            two.apply(&store(&chain[..i], i - 1));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        tokio::time::timeout(Duration::from_secs(600), async {
            while !rebuilt() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        })
        .await
    };
    tokio::select! {
        _ = upkeep => {}
        done = writing => done.unwrap(),
    }
    assert!(!index.registry.lock().trees.current.is_worn());
    let found = overlaps(&index, &prompt(&chain)).await;
    assert_eq!((found[&WorkerId(1)].confirmed, found[&WorkerId(2)].confirmed), (999, 499));
    one.clear();
    assert_eq!(overlaps(&index, &prompt(&chain)).await.len(), 1, "written to the new tree");
    drop(stale);
}

#[tokio::test]
async fn a_broken_tree_is_worn() {
    let index = index();
    let tree = Arc::clone(&index.registry.lock().trees.current);
    assert!(!tree.is_worn());
    tree.shut_down();
    writer(&index, 1).apply(&store(&[1], 0));
    assert!(tree.is_worn() && tree.is_broken());
    drop(tree);
    index.settled().await; // does not wait for what can't happen
    index.rebuild().await;
    assert_eq!(depths(&index, &prompt(&[1])).await, (1, 1), "what the broken tree lost included");
}

/// What is in the thread's queue when it ends is never answered.
#[tokio::test(start_paused = true)]
async fn who_waits_for_a_thread_that_dies_is_let_go() {
    let path: Vec<u32> = (1..500).collect();
    for round in 0..20 {
        let index = index();
        let tree = Arc::clone(&index.registry.lock().trees.current);
        writer(&index, 1).apply(&store(&path, 0));
        let killer = std::thread::spawn(move || tree.shut_down());
        if round % 2 == 0 {
            index.settle();
        } else {
            index.settled().await;
        }
        killer.join().unwrap();
    }
}

#[tokio::test]
async fn a_writer_far_ahead_waits_for_the_index() {
    let index = index();
    let mut one = writer(&index, 1);
    let path: Vec<u32> = (1..2000).collect();
    for i in 1..path.len() {
        one.apply(&store(&path[..i], i - 1));
    }
    one.ready().await;
    let keys = block_keys(&prompt(&path), BLOCK);
    assert_eq!(
        index.overlap(&keys)[&WorkerId(1)].confirmed,
        1998,
        "seen without asking for it to be settled"
    );
}

#[tokio::test]
async fn an_engine_that_drops_heads_does_not_fill_memory() {
    let index = index();
    let mut one = writer(&index, 1);
    let path: Vec<u32> = (1..6000).collect();
    one.apply(&store(&path, 0));
    // All but the last block, head first: what is left hangs on nothing.
    one.apply(&remove(handles(&path, 0)[..5998].to_vec()));
    assert_eq!(depths(&index, &prompt(&path)).await, (0, 0));
    assert_eq!(index.blocks(WorkerId(1)).gpu, 0, "forgotten, for it can't be credited");
    one.apply(&store(&path[..3], 0));
    assert_eq!(depths(&index, &prompt(&path)).await, (3, 3));
}
