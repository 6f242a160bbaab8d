//! What is told of a decision by the real server: its log, its admin listener, `kinfctl` and its traces, of one request
//! that came through Envoy.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
};

use kinference::observe::TraceProtocol;
use serde_json::Value;

use crate::{
    receiver::Receiver,
    stack::{PATIENCE, Stack, until},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

fn explained(id: &str, admin: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_kinfctl"))
        .args(["explain", "--request-id", id, "--admin", &format!("http://{admin}")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_through_envoy_is_told_of_everywhere() {
    let mut receiver = Receiver::start(TraceProtocol::Grpc).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("decisions.jsonl");
    let extra = format!(
        "[decision_log]\noutput = \"file\"\nfile = \"{}\"\n[traces]\nendpoint = \"{}\"\n",
        file.display(),
        receiver.endpoint
    );
    let Some(mut stack) = Stack::with("duplex.yaml", &extra, &["--speedup", "50"]).await else { return };
    let body = serde_json::json!({"model": "tiny", "max_tokens": 4, "messages": [{"role": "user", "content": "s3cret"}]});
    let answer = stack
        .client
        .post(format!("{}/v1/chat/completions", stack.envoy.url))
        .header("content-type", "application/json")
        .header("traceparent", format!("00-{TRACE}-{CALLER}-01"))
        .body(body.to_string())
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success() && answer.text().await.is_ok());
    stack.until_idle().await;

    // Batches come when they do: the decision may come before the response.
    let mut spans = Vec::new();
    let response = until("the response's span", async || {
        let scopes = receiver.received().into_iter().flat_map(|resource| resource.scope_spans);
        spans.extend(scopes.flat_map(|scope| scope.spans));
        spans.iter().find(|span| span.name == "chat tiny").cloned()
    })
    .await;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let decide = spans.iter().find(|span| span.name == "kinference.decide").unwrap();
    assert_eq!((hex(&decide.trace_id), hex(&decide.parent_span_id)), (TRACE.to_owned(), CALLER.to_owned()));
    assert_eq!((&response.trace_id, &response.parent_span_id), (&decide.trace_id, &decide.span_id));
    assert!(response.attributes.iter().any(|one| one.key == "gen_ai.usage.output_tokens"), "{response:?}");
    assert!(!format!("{spans:?}").contains("s3cret"));

    let latest = format!("http://{}/api/decisions?limit=1", stack.router.admin);
    let latest: Value = reqwest::get(latest).await.unwrap().json().await.unwrap();
    let decision = &latest["decisions"][0];
    assert_eq!((&decision["trace_id"], &decision["ending"]["outcome"]), (&TRACE.into(), &"completed".into()));
    let story = explained(decision["request_id"].as_str().unwrap(), &stack.router.admin);
    assert!(story.contains("goes to w") && story.contains("completed after"), "{story}");

    // What was decided is in the file when the server has ended, if not before.
    stack.router.terminate();
    let text = fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((lines.len(), &lines[0]["request_id"]), (1, &decision["request_id"]), "{text}");
    assert!(lines[0]["decision"]["candidates"].as_array().unwrap().len() == 3 && !text.contains("s3cret"));
}

/// A body that stops half way, and what its client reads.
fn stalled(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json";
    write!(stream, "{head}\r\ncontent-length: 100\r\n\r\n{{\"model\":").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_before_it_is_decided_is_told_of_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("decisions.jsonl");
    let extra = format!(
        "body_max_request_kb = 64\nbody_idle_timeout_secs = 1\n[ext_proc]\nexplain_headers = true\n\
         [decision_log]\noutput = \"file\"\nfile = \"{}\"\nsample = 0.0\n",
        file.display()
    );
    let Some(mut stack) = Stack::with("duplex.yaml", &extra, &["--speedup", "50"]).await else { return };
    let chat = |words: usize| {
        serde_json::json!({"model": "tiny", "max_tokens": 1, "messages": [{"role": "user", "content": "word ".repeat(words)}]})
            .to_string()
    };
    let accepted = stack.post("/v1/chat/completions", chat(9)).await;
    assert_eq!(accepted.status(), 200);
    let large = stack.post("/v1/chat/completions", chat(20_000)).await;
    assert_eq!(large.status(), 413);
    let id = large.headers()["x-kinference-request-id"].to_str().unwrap().to_owned();
    let address = stack.envoy.url.trim_start_matches("http://").to_owned();
    let late = tokio::task::spawn_blocking(move || stalled(&address)).await.unwrap();
    assert!(late.starts_with("HTTP/1.1 408"), "{late}");
    stack.until_idle().await;

    let latest = format!("http://{}/api/decisions?limit=9", stack.router.admin);
    let latest: Value = reqwest::get(latest).await.unwrap().json().await.unwrap();
    let told: Vec<_> = latest["decisions"].as_array().unwrap().iter().collect();
    let kinds: Vec<_> = told.iter().map(|one| one["rejection"]["kind"].as_str().unwrap_or("none")).collect();
    assert_eq!(kinds, ["body_timeout", "body_too_large", "none"]);
    assert_eq!((&told[1]["call"], &told[1]["request_id"]), (&"chat_completions".into(), &id.as_str().into()));
    let story = explained(&id, &stack.router.admin);
    assert!(story.contains("is rejected with 413 (body_too_large)"), "{story}");
    for kind in ["body_timeout", "body_too_large"] {
        let counted = format!("kinference_rejections_total{{kind=\"{kind}\"");
        assert_eq!(stack.router.metric(&counted).await, 1.0);
    }
    stack.router.terminate();
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"body_timeout\"") && text.contains("\"body_too_large\""), "{text}");
}
