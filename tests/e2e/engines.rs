//! Engines that die, come back, or are not there.

use serde_json::Value;

use crate::stack::{Engine, Envoy, Router, Stack, all, until};

#[tokio::test]
async fn no_worker_is_503() {
    let engines = [Engine::start(&[])];
    let router = Router::start(&[], "");
    let Some(envoy) = Envoy::start("duplex.yaml", &router, &engines).await else { return };
    let stack = Stack { envoy, router, engines: engines.into(), client: reqwest::Client::new() };
    let response = stack.chat("hello").await;
    assert_eq!(response.status(), 503);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["code"], 503);
    let ready = reqwest::get(format!("http://{}/readyz", stack.router.admin)).await.unwrap();
    assert_eq!(ready.status(), 503);
    let why: Value = ready.json().await.unwrap();
    assert_eq!(why["reasons"][0], "no worker is known");
}

/// After an engine is killed, requests go on: those sent to it fall back to another.
#[tokio::test]
async fn a_killed_engine_costs_no_later_request() {
    let Some(mut stack) = Stack::start().await else { return };
    for i in 0..6 {
        assert_eq!(stack.chat(&format!("warm up {i}")).await.status(), 200);
    }
    stack.engines[1].kill();
    for i in 0..30 {
        assert_eq!(stack.chat(&format!("after {i}")).await.status(), 200, "request {i}");
    }
    stack.router.until("the dead one is known as failing", |f| f["workers"][1]["failing"] == true).await;
    stack.until_idle().await;
}

/// A restarted engine has an empty cache: what it held is forgotten, and learned again.
#[tokio::test]
async fn a_restarted_engine_is_forgotten_and_learned_again() {
    let Some(mut stack) = Stack::start().await else { return };
    let prefix = "the quick brown fox jumps over the lazy dog ".repeat(40);
    stack.chat(&prefix).await.error_for_status().unwrap();
    let held = |f: &Value, i: usize| f["workers"][i]["blocks"]["gpu"].as_u64().unwrap_or(0);
    let fleet = stack.router.until("its blocks are known", |f| (0..3).any(|i| held(f, i) > 10)).await;
    let warm = (0..3).find(|i| held(&fleet, *i) > 10).unwrap();
    stack.engines[warm].restart();
    let synced = |f: &Value| f["workers"][warm]["kv_events"]["state"] == "synced";
    stack.router.until("its blocks are forgotten", |f| held(f, warm) == 0 && synced(f)).await;
    stack.chat(&prefix).await.error_for_status().unwrap();
    stack.router.until("blocks are known again", |f| (0..3).any(|i| held(f, i) > 10)).await;
    assert!(all(&stack.router.fleet().await, |w| w["kv_events"]["state"] == "synced"));
}

/// The fleet follows its file: a worker that is taken out gets nothing, one that is put in does.
#[tokio::test]
async fn the_workers_file_is_followed() {
    let Some(stack) = Stack::start().await else { return };
    stack.router.set_workers(&stack.engines[..1]);
    stack.router.until("two have left", |f| f["workers"].as_array().is_some_and(|w| w.len() == 1)).await;
    for i in 0..5 {
        assert_eq!(stack.chat(&format!("one {i}")).await.status(), 200);
    }
    stack.router.set_workers(&stack.engines);
    stack
        .router
        .until("they are back and synced", |f| {
            f["workers"].as_array().is_some_and(|w| w.len() == 3)
                && all(f, |w| w["kv_events"]["state"] == "synced")
        })
        .await;
}

#[tokio::test]
async fn a_wrong_block_size_evicts() {
    let engines = [
        Engine::start(&["--speedup", "50", "--kv-block-size-published", "32"]),
        Engine::start(&["--speedup", "50"]),
    ];
    let router = Router::start(&engines, "");
    let Some(envoy) = Envoy::start("duplex.yaml", &router, &engines).await else { return };
    let stack = Stack { envoy, router, engines: engines.into(), client: reqwest::Client::new() };
    until("the mismatch is found", async || {
        stack.chat(&"some words for a few blocks ".repeat(30)).await.error_for_status().unwrap();
        let fleet = stack.router.fleet().await;
        Some(()).filter(|()| fleet["workers"][0]["kv_events"]["state"] == "evicted")
    })
    .await;
    for i in 0..5 {
        assert_eq!(stack.chat(&format!("after {i}")).await.status(), 200);
    }
}
