//! What is told of a decision by the real server: its log, its admin listener, `kinfctl` and its traces, of one request
//! that came through Envoy.

use std::{fs, process::Command};

use kinference::observe::TraceProtocol;
use serde_json::Value;

use crate::{
    receiver::Receiver,
    stack::{Stack, until},
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
