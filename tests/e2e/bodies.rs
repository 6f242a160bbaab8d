//! Bodies at and beyond the limits.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use bytes::Bytes;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::stack::{PATIENCE, Stack};

const MIB: usize = 1024 * 1024;

fn chat_of(bytes: usize) -> String {
    json!({"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "word ".repeat(bytes / 5)}]})
        .to_string()
}

#[tokio::test]
async fn a_300_kb_body_arrives_whole() {
    let Some(stack) = Stack::with(
        "duplex.yaml",
        "",
        &["--speedup", "1000", "--max-model-len", "200000", "--num-blocks", "20000"],
    )
    .await
    else {
        return;
    };
    let response = stack.post("/v1/chat/completions", chat_of(300 * 1024)).await;
    assert_eq!(response.status(), 200);
    let answer: Value = response.json().await.unwrap();
    assert!(answer["usage"]["prompt_tokens"].as_u64().unwrap() > 60_000, "{answer}");
    stack.until_idle().await;
    assert_eq!(stack.router.metric("kinference_body_held_bytes").await, 0.0);
}

#[tokio::test]
async fn a_body_over_the_cap_is_refused() {
    let Some(stack) = Stack::start().await else { return };
    let response = stack.post("/v1/chat/completions", chat_of(8 * 1024 * 1024 + 100 * 1024)).await;
    assert_eq!(response.status(), 413);
    let error: Value = response.json().await.unwrap();
    assert_eq!(error["error"]["code"], 413);
    stack.until_idle().await;
}

/// Many clients send all of a body before they read: they have to learn why it was refused, too.
#[tokio::test]
async fn a_client_that_sends_everything_first_reads_its_refusal() {
    let Some(stack) = Stack::start().await else { return };
    let address = stack.envoy.url.trim_start_matches("http://").to_owned();
    let answer = tokio::task::spawn_blocking(move || {
        let body = chat_of(9 * 1024 * 1024);
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
        write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("\"code\":413"), "{answer}");
}

/// 200 bodies of 1 MiB against a total cap of 16 MiB: most are turned away, none hangs, nothing is left.
#[tokio::test]
async fn parallel_bodies_stay_under_the_total_cap() {
    let extra = "body_max_total_kb = 16384";
    let args = ["--speedup", "1000", "--max-model-len", "2000000", "--num-blocks", "200000"];
    let Some(stack) = Stack::with("duplex.yaml", extra, &args).await else { return };
    let body = chat_of(1024 * 1024);
    let statuses = join_all((0..200).map(|_| async {
        let response = stack.post("/v1/chat/completions", body.clone()).await;
        (response.status().as_u16(), response.headers().contains_key("retry-after"))
    }))
    .await;
    let count = |status| statuses.iter().filter(|(s, _)| *s == status).count();
    assert_eq!(count(200) + count(429), 200, "{statuses:?}");
    assert!(count(429) > 0 && count(200) > 0, "{} served, {} turned away", count(200), count(429));
    assert!(statuses.iter().all(|(s, retry)| *s != 429 || *retry), "429 says when to retry");
    stack.until_idle().await;
    assert_eq!(stack.router.metric("kinference_body_held_bytes").await, 0.0);
}

/// 400 MiB of bodies at once against a total cap of 16 MiB, none of which gets as far as a tokenizer: what the
/// server holds stays near the cap.
#[tokio::test]
async fn parallel_bodies_hold_no_more_memory_than_the_cap() {
    let Some(stack) = Stack::with("duplex.yaml", "body_max_total_kb = 16384", &["--speedup", "50"]).await
    else {
        return;
    };
    let body = Bytes::from(chat_of(2 * MIB).replace("\"tiny\"", "\"nope\""));
    let before = stack.router.peak_memory();
    let sent =
        (0..200).map(|_| async { stack.post("/v1/chat/completions", body.clone()).await.status().as_u16() });
    let statuses = join_all(sent).await;
    let count = |status| statuses.iter().filter(|s| **s == status).count();
    assert_eq!(count(404) + count(429), 200, "{statuses:?}");
    assert!(count(429) > 0, "{statuses:?}");
    let grown = (stack.router.peak_memory() - before) / MIB;
    assert!(grown < 200, "grew by {grown} MiB");
    assert_eq!(stack.router.metric("kinference_body_held_bytes").await, 0.0);
}

#[tokio::test]
async fn an_aborted_client_leaves_no_load() {
    let Some(stack) = Stack::with("duplex.yaml", "", &["--speedup", "1"]).await else { return };
    let long = json!({"model": "tiny", "max_tokens": 2000, "stream": true,
        "messages": [{"role": "user", "content": "hello ".repeat(500)}]});
    let sent = stack.post("/v1/chat/completions", long.to_string());
    let response = tokio::time::timeout(Duration::from_secs(15), sent).await.unwrap();
    assert_eq!(response.status(), 200);
    drop(response);
    stack.until_idle().await;
    let cancelled = "kinference_requests_total{model=\"tiny\",outcome=\"cancelled\"";
    assert_eq!(stack.router.metric(cancelled).await, 1.0);
}
