//! One rank, with all that goes wrong.

use std::time::Duration;

use bytes::Bytes;
use kinference::fleet::KvState;
use rmpv::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    sync::watch,
    task::JoinSet,
};

use crate::{
    engine::{Engine, Replays, remove, store},
    proxy::proxied,
    router::{BLOCK, DEADLINE, Router},
};

async fn learns_what_came_before_and_what_comes(replays: Replays) {
    let mut engine = Engine::start(replays).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    engine.lose(vec![store(3, BLOCK), remove(1)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 2).await;
    engine.publish(vec![store(4, BLOCK)]).await;
    router.hears(&mut engine, KvState::Synced, 3).await;
    engine.publish(vec![remove(2), remove(3)]).await;
    router.reaches(KvState::Synced, 1).await;
}

#[tokio::test]
async fn a_replay_with_topics() {
    learns_what_came_before_and_what_comes(Replays::WithTopic).await;
}

#[tokio::test]
async fn a_replay_without_topics() {
    learns_what_came_before_and_what_comes(Replays::Bare).await;
}

#[tokio::test]
async fn an_idle_engine_is_synced() {
    let engine = Engine::start(Replays::WithTopic).await;
    Router::of(&engine).reaches(KvState::Synced, 0).await;
}

#[tokio::test]
async fn a_gap_is_replayed() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 1).await;
    router.is_subscribed(&mut engine, 2).await;
    let gaps = router.counted("kinference_kv_gaps_total");
    engine.lose(vec![remove(1)]);
    engine.lose(vec![store(2, BLOCK), store(3, BLOCK)]);
    engine.publish(vec![store(4, BLOCK)]).await;
    router.reaches(KvState::Synced, 3).await;
    assert!(router.counted("kinference_kv_gaps_total") > gaps);
    assert_eq!(router.counted("kinference_kv_restarts_total"), 0);
}

#[tokio::test]
async fn an_engine_that_numbers_anew_is_learned_anew() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 2).await;
    router.is_subscribed(&mut engine, 3).await;
    engine.forget();
    engine.publish(vec![store(9, BLOCK)]).await;
    router.reaches(KvState::Synced, 1).await;
    assert_eq!(router.counted("kinference_kv_restarts_total"), 1);
}

#[tokio::test]
async fn a_lost_connection_is_dialled_anew() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK)]);
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 2).await;
    let (events_at, replay_at) = engine.stop().await;
    router.reaches(KvState::Disconnected, 0).await;
    let mut engine = Engine::start_at(&events_at, &replay_at, Replays::WithTopic).await;
    engine.lose(vec![store(5, BLOCK)]);
    router.reaches(KvState::Synced, 1).await;
    engine.publish(vec![store(6, BLOCK)]).await;
    router.hears(&mut engine, KvState::Synced, 2).await;
}

#[tokio::test]
async fn an_engine_that_comes_later_is_found() {
    let (events_at, replay_at) = Engine::start(Replays::WithTopic).await.stop().await;
    let router = Router::follow(Some(&events_at), Some(&replay_at), DEADLINE);
    router.reaches(KvState::Disconnected, 0).await;
    let _engine = Engine::start_at(&events_at, &replay_at, Replays::WithTopic).await;
    router.reaches(KvState::Synced, 0).await;
}

#[tokio::test]
async fn a_replay_that_never_ends_is_given_up() {
    let mut engine = Engine::start(Replays::Never).await;
    engine.lose(vec![store(1, BLOCK)]);
    let soon = Duration::from_millis(200);
    let router = Router::follow(Some(&engine.events_at), Some(&engine.replay_at), soon);
    router.reaches(KvState::LiveOnly, 0).await;
    assert_eq!(router.counted("kinference_kv_replays_total{outcome=\"timed_out\"}"), 1);
    router.is_subscribed(&mut engine, 1).await;
    engine.publish(vec![store(2, BLOCK)]).await;
    router.reaches(KvState::LiveOnly, 1).await;
}

#[tokio::test]
async fn a_dead_replay_socket_leaves_live_events() {
    let engine = Engine::start(Replays::WithTopic).await;
    let (_, nobody) = Engine::start(Replays::WithTopic).await.stop().await;
    let router = Router::follow(Some(&engine.events_at), Some(&nobody), DEADLINE);
    router.reaches(KvState::LiveOnly, 0).await;
    assert_eq!(router.counted("kinference_kv_replays_total{outcome=\"failed\"}"), 1);
}

#[tokio::test]
async fn without_a_replay_socket_only_live_events_count() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    let router = Router::follow(Some(&engine.events_at), None, DEADLINE);
    router.reaches(KvState::LiveOnly, 0).await;
    router.is_subscribed(&mut engine, 1).await;
    engine.publish(vec![store(2, BLOCK), store(3, BLOCK)]).await;
    router.reaches(KvState::LiveOnly, 2).await;
    engine.lose(vec![remove(2)]);
    engine.publish(vec![store(4, BLOCK)]).await;
    router.reaches(KvState::LiveOnly, 1).await;
}

#[tokio::test]
async fn garbage_is_counted_and_skipped() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    let router = Router::of(&engine);
    router.reaches(KvState::Synced, 0).await;
    router.is_subscribed(&mut engine, 1).await;
    engine.send(vec![Bytes::from_static(b"one frame")]).await;
    let seq = engine.log.lock().len() as u64;
    let broken = Bytes::from_static(b"\x93\xc1");
    engine.log.lock().push(broken.clone());
    engine.send(vec![Bytes::new(), seq.to_be_bytes().to_vec().into(), broken]).await;
    let unknown = Value::Array(vec!["BlockMoved".into(), Value::Nil]);
    engine.publish(vec![unknown, store(1, BLOCK)]).await;
    router.reaches(KvState::Synced, 1).await;
    assert_eq!(router.counted("kinference_kv_undecodable_total"), 2);
    assert_eq!(router.counted("kinference_kv_events_skipped_total{reason=\"unknown_type\"}"), 1);
    assert_eq!(router.counted("kinference_kv_gaps_total"), 0);
}

#[tokio::test]
async fn another_block_size_evicts() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK), store(2, BLOCK * 2), store(3, BLOCK)]);
    let mut router = Router::of(&engine);
    let evicted = tokio::time::timeout(DEADLINE, router.task.join_next()).await.unwrap().unwrap().unwrap();
    let words = evicted.unwrap().0;
    assert!(words.contains("8 tokens") && words.contains("is 4"), "{words}");
    assert!(router.is(&KvState::Evicted(words.clone()), 0));
    assert!(router.member.status.is_evicted());
    assert_eq!(router.counted("kinference_kv_evictions_total{reason=\"block_size\"}"), 1);
}

#[tokio::test]
async fn a_worker_without_an_event_socket_stays_unknown() {
    let mut router = Router::follow(None, None, DEADLINE);
    assert_eq!(router.task.join_next().await.unwrap().unwrap(), None);
    assert!(router.is(&KvState::Unknown, 0));
}

#[tokio::test]
async fn a_connection_that_died_in_silence_is_found_out() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    let (mut proxy, hold) = (JoinSet::new(), watch::channel(false).0);
    let near = proxied(&mut proxy, &engine, hold.subscribe()).await;
    let router = Router::follow(Some(&near), Some(&engine.replay_at), DEADLINE);
    router.reaches(KvState::Synced, 1).await;
    router.is_subscribed(&mut engine, 2).await;
    hold.send(true).unwrap();
    engine.publish(vec![remove(1), store(2, BLOCK), store(3, BLOCK)]).await;
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let found = async {
        while !router.is(&KvState::Synced, 2) {
            router.member.status.kv_expected.notify_one();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, found).await.unwrap();
    assert_eq!(router.counted("kinference_kv_restarts_total"), 0);
}

#[tokio::test]
async fn kinfctl_tails_what_came_before_and_what_comes() {
    let mut engine = Engine::start(Replays::WithTopic).await;
    engine.lose(vec![store(1, BLOCK)]);
    engine.lose(vec![remove(1)]);
    let mut kinfctl = tokio::process::Command::new(env!("CARGO_BIN_EXE_kinfctl"))
        .args(["events", "tail", &engine.events_at, "--replay", &engine.replay_at])
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(kinfctl.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(DEADLINE, lines.next_line()).await.unwrap().unwrap().unwrap();
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        (line["seq"].as_u64().unwrap(), line["type"].as_str().unwrap().to_string())
    };
    assert_eq!(next().await, (0, "BlockStored".into()));
    assert_eq!(next().await, (1, "BlockRemoved".into()));
    // Whichever is the first after the subscription is active.
    let publishing = async {
        loop {
            engine.publish(vec![store(2, BLOCK)]).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let (seq, kind) = tokio::select! {
        line = next() => line,
        () = publishing => unreachable!(),
    };
    assert!(seq >= 2 && kind == "BlockStored");
}
