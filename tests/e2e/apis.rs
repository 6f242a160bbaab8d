//! What clients send every day, through the main configuration.

use futures::StreamExt;
use serde_json::{Value, json};

use crate::stack::{Stack, all};

#[tokio::test]
async fn chat_whole_and_streamed() {
    let Some(stack) = Stack::start().await else { return };
    let whole: Value = stack.chat("Hello there").await.json().await.unwrap();
    assert_eq!(whole["usage"]["completion_tokens"], 4);
    assert!(whole["choices"][0]["message"]["content"].is_string());

    let body = json!({"model": "tiny", "max_tokens": 5, "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Hello there"}]});
    let response = stack.post("/v1/chat/completions", body.to_string()).await;
    assert_eq!(response.status(), 200);
    let chunks: Vec<_> = response.bytes_stream().collect::<Vec<_>>().await;
    let text: String =
        chunks.iter().map(|c| String::from_utf8_lossy(c.as_ref().unwrap()).into_owned()).collect();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(text.contains("\"completion_tokens\":5"), "{text}");
    stack.until_idle().await;
    assert_eq!(stack.router.metric("kinference_ttft_seconds_count").await, 1.0);
    assert_eq!(stack.router.metric("kinference_tokens_total{kind=\"output\"").await, 9.0);
    assert_eq!(stack.router.metric("kinference_decisions_total{basis=\"prompt\"").await, 2.0);
}

#[tokio::test]
async fn completions_and_what_is_no_inference() {
    let Some(stack) = Stack::start().await else { return };
    let body = json!({"model": "tiny", "prompt": "alpha beta", "max_tokens": 3});
    let whole: Value = stack.post("/v1/completions", body.to_string()).await.json().await.unwrap();
    assert_eq!(whole["usage"]["completion_tokens"], 3);
    let models: Value = stack
        .client
        .get(format!("{}/v1/models", stack.envoy.url))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["data"][0]["id"], "tiny");
    stack.until_idle().await;
    assert_eq!(
        stack
            .router
            .metric("kinference_decisions_degraded_total{model=\"_none\",reason=\"not_inference\"")
            .await,
        1.0
    );
}

#[tokio::test]
async fn a_shared_prefix_goes_where_it_is_cached() {
    let Some(stack) = Stack::start().await else { return };
    // Its prefill (300 blocks: 1.5 s) outweighs the most that the penalty for a running request can be.
    let prefix = "the quick brown fox jumps over the lazy dog ".repeat(500);
    let mut cached = Vec::new();
    for i in 0..6 {
        let answer: Value = stack.chat(&format!("{prefix} question {i}")).await.json().await.unwrap();
        cached.push(answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0));
        // On a busy machine an answer may overtake the engine's KV event, or a scrape on its way.
        let holds = |w: &Value| w["blocks"]["gpu"].as_u64().is_some_and(|blocks| blocks > 70);
        let known = |f: &Value| !all(f, |w| !holds(w)) && all(f, |w| w["load"]["running"] == 0.0);
        stack.router.until("the prefix is known and nothing runs", known).await;
    }
    assert_eq!(cached[0], 0);
    assert!(cached[1..].iter().all(|c| *c > 4000), "{cached:?}");
    let fleet = stack.router.fleet().await;
    let holders = fleet["workers"].as_array().unwrap().iter().filter(|w| w["blocks"]["gpu"] != 0).count();
    assert_eq!(holders, 1, "{fleet:#}");
}

#[tokio::test]
async fn errors_are_in_the_clients_own_format() {
    let Some(stack) = Stack::start().await else { return };
    let bad = stack.post("/v1/chat/completions", "{\"model\": ").await;
    assert_eq!(bad.status(), 400);
    let bad: Value = bad.json().await.unwrap();
    assert_eq!(bad["error"]["type"], "invalid_request_error");

    let unknown = json!({"model": "nope", "messages": [{"role": "user", "content": "x"}]}).to_string();
    let response = stack.post("/v1/chat/completions", unknown.clone()).await;
    assert_eq!(response.status(), 404);
    let error: Value = response.json().await.unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("nope"), "{error}");

    let response = stack.post("/v1/messages", unknown).await;
    assert_eq!(response.status(), 404);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["type"], "error");
    assert_eq!(error["error"]["type"], "not_found_error");
}

#[tokio::test]
async fn a_spoofed_destination_is_not_believed() {
    let Some(stack) = Stack::start().await else { return };
    let body = json!({"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]});
    let response = stack
        .client
        .post(format!("{}/v1/chat/completions", stack.envoy.url))
        .header("content-type", "application/json")
        .header("x-gateway-destination-endpoint", "127.0.0.1:1")
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}
