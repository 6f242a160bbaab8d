//! Several data-parallel ranks: each with its own stream and blocks, together one worker.

use std::time::Duration;

use bytes::Bytes;
use kinference::{
    cache::block_keys,
    fleet::{KvSockets, KvSource, KvState},
    ingest::kv::wire,
    types::{PromptTokens, Rank},
};
use tokio::{sync::watch, task::JoinSet};

use crate::{
    engine::{Engine, Replays, remove, sockets, store, store_after, tokens},
    proxy::proxied,
    router::{BLOCK, DEADLINE, ID, Router},
};

async fn two() -> (Engine, Engine) {
    (Engine::start(Replays::WithTopic).await, Engine::start(Replays::WithTopic).await)
}

/// Leading blocks that the worker is credited with for a prompt of blocks 1, 2 and 3.
async fn credit(router: &Router) -> u32 {
    router.index.settled().await;
    let ids: Vec<u32> = (1..=3).flat_map(|hash| tokens(hash, BLOCK)).collect();
    let prompt = PromptTokens { ids: ids.into(), ..PromptTokens::default() };
    router.index.overlap(&block_keys(&prompt, BLOCK)).get(&ID).map_or(0, |overlap| overlap.confirmed)
}

#[tokio::test]
async fn the_rank_that_holds_most_of_a_prompt_gives_the_credit() {
    let (mut first, mut second) = two().await;
    first.lose(vec![store(1, BLOCK), store(8, BLOCK)]);
    second.lose(vec![store(1, BLOCK), store_after(Some(1), 2, BLOCK), store_after(Some(2), 3, BLOCK)]);
    let router = Router::of_ranks(&[&first, &second]);
    router.reaches(KvState::Synced, 5).await;
    assert_eq!(credit(&router).await, 3);
    second.publish(vec![remove(3)]).await;
    router.hears(&mut second, KvState::Synced, 4).await;
    assert_eq!(credit(&router).await, 2, "the ranks' blocks do not add up to a longer prefix");
}

#[tokio::test]
async fn a_rank_that_is_lost_leaves_the_other_alone() {
    let (mut first, mut second) = two().await;
    first.lose(vec![store(1, BLOCK)]);
    second.lose(vec![store(1, BLOCK), store_after(Some(1), 2, BLOCK)]);
    let router = Router::of_ranks(&[&first, &second]);
    router.reaches(KvState::Synced, 3).await;
    let (events_at, replay_at) = second.stop().await;
    router.reaches(KvState::Disconnected, 1).await;
    assert_eq!(credit(&router).await, 1);
    first.publish(vec![store(4, BLOCK)]).await;
    router.hears(&mut first, KvState::Disconnected, 2).await;
    let mut second = Engine::start_at(&events_at, &replay_at, Replays::WithTopic).await;
    second.lose(vec![store(5, BLOCK), store(6, BLOCK)]);
    router.reaches(KvState::Synced, 4).await;
    assert!(
        first.asked.lock().iter().filter(|from| **from == 0).count() == 1,
        "replayed from the start once"
    );
}

#[tokio::test]
async fn a_gap_is_replayed_for_its_rank_only() {
    let (mut first, mut second) = two().await;
    let router = Router::of_ranks(&[&first, &second]);
    router.reaches(KvState::Synced, 0).await;
    first.publish(vec![store(1, BLOCK)]).await;
    router.hears(&mut first, KvState::Synced, 1).await;
    second.publish(vec![store(2, BLOCK)]).await;
    router.hears(&mut second, KvState::Synced, 2).await;
    let before = (first.asked.lock().len(), second.asked.lock().len());
    second.lose(vec![remove(2)]);
    second.publish(vec![store(3, BLOCK), store(4, BLOCK)]).await;
    router.reaches(KvState::Synced, 3).await;
    assert_eq!((first.asked.lock().len(), second.asked.lock().len()), (before.0, before.1 + 1));
    assert!(second.asked.lock().last().is_some_and(|from| *from > 0), "only what is missing");
}

#[tokio::test]
async fn a_rank_that_numbers_anew_loses_its_own_blocks_only() {
    let (mut first, mut second) = two().await;
    first.lose(vec![store(1, BLOCK)]);
    second.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    let router = Router::of_ranks(&[&first, &second]);
    router.reaches(KvState::Synced, 3).await;
    second.publish(vec![store(3, BLOCK)]).await;
    router.hears(&mut second, KvState::Synced, 4).await;
    second.forget();
    second.publish(vec![store(9, BLOCK)]).await;
    router.reaches(KvState::Synced, 2).await;
    assert_eq!(router.counted("kinference_kv_restarts_total"), 1);
    assert_eq!(*first.asked.lock(), [0]);
}

#[tokio::test]
async fn a_wrong_block_size_on_one_rank_evicts_the_worker() {
    let (mut first, mut second) = two().await;
    first.lose(vec![store(1, BLOCK)]);
    let mut router = Router::of_ranks(&[&first, &second]);
    router.reaches(KvState::Synced, 1).await;
    second.publish(vec![store(2, BLOCK * 2)]).await;
    let ended = async {
        loop {
            tokio::select! {
                ended = router.task.join_next() => return ended.unwrap().unwrap().unwrap().0,
                () = tokio::time::sleep(Duration::from_millis(10)) => second.publish(vec![]).await,
            }
        }
    };
    let words = tokio::time::timeout(DEADLINE, ended).await.unwrap();
    assert!(words.contains("rank 1") && words.contains("8 tokens") && words.contains("is 4"), "{words}");
    assert!(router.is(&KvState::Evicted(words), 0), "the blocks of the other rank go, too");
    assert_eq!(router.counted("kinference_kv_evictions_total{reason=\"block_size\"}"), 1);
}

#[tokio::test]
async fn the_engine_at_work_makes_every_silent_rank_suspect() {
    let (mut first, mut second) = two().await;
    first.lose(vec![store(1, BLOCK)]);
    second.lose(vec![store(2, BLOCK)]);
    let (mut proxies, hold) = (JoinSet::new(), watch::channel(false).0);
    let mut ranks = vec![];
    for (rank, engine) in [(Rank(0), &first), (Rank(1), &second)] {
        let events = proxied(&mut proxies, engine, hold.subscribe()).await;
        ranks.push(KvSockets { rank, events, replay: Some(engine.replay_at.clone()) });
    }
    let router = Router::with((KvSource::Sockets(ranks), BLOCK), None, DEADLINE);
    router.reaches(KvState::Synced, 2).await;
    hold.send(true).unwrap();
    first.publish(vec![store(3, BLOCK)]).await;
    second.publish(vec![store(4, BLOCK)]).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let found = async {
        while !router.is(&KvState::Synced, 4) {
            router.member.status.kv_expected.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, found).await.unwrap();
}

/// Blocks that a worker holds when these payloads are what each of its ranks has published.
async fn held(ranks: &[&[Bytes]]) -> usize {
    let mut engines = vec![];
    for payloads in ranks {
        let engine = Engine::start(Replays::WithTopic).await;
        engine.log.lock().extend_from_slice(payloads);
        engines.push(engine);
    }
    let router = Router::with((sockets(&engines.iter().collect::<Vec<_>>()), 32), None, DEADLINE);
    let synced = async {
        while **router.member.status.kv.load() != KvState::Synced {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, synced).await.unwrap();
    router.index.blocks(ID).gpu
}

#[tokio::test]
async fn recorded_events_of_two_ranks_do_not_mix() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vllm-0.32/events/v032.bin");
    let recorded = wire::recorded(std::fs::read(path).unwrap().into()).unwrap();
    let all: Vec<Bytes> = recorded.iter().map(|frames| wire::numbered(frames).unwrap().payload).collect();
    // All of it clears midway; its beginning does not.
    let beginning = &all[..12];
    let alone = (held(&[&all]).await, held(&[beginning]).await);
    assert!(alone.0 > 100 && alone.1 > 10, "{alone:?}");
    assert_eq!(held(&[&all, beginning]).await, alone.0 + alone.1);
}
