//! `kinfctl explain --request-id` against an admin listener of which all is known: it tells the examples of the documentation.

use std::{fs, path::Path};

use axum::{Json, Router, extract, http::StatusCode, response::IntoResponse, routing::get};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::spawn_blocking};

use super::run::{Snapshots, kinfctl};

/// The examples of the page: a decision, and a rejection.
fn examples() -> [Value; 2] {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/decision-log.md");
    let page = fs::read_to_string(path).unwrap();
    let mut found = page.split("```json\n").skip(1).map(|rest| rest.split_once("\n```\n").unwrap().0);
    [(); 2].map(|()| serde_json::from_str(found.next().unwrap()).unwrap())
}

/// The first example with more candidates: two fallbacks, a provider that is left, and one that is evicted.
fn many() -> Value {
    let [mut decision, _] = examples();
    let made = &mut decision["decision"];
    for name in ["w3", "w4"] {
        let mut other = made["candidates"][0].clone();
        other["worker"]["name"] = json!(name);
        other["prediction"]["queue_ms"] = json!(1000.0);
        made["candidates"].as_array_mut().unwrap().push(other);
    }
    let mut cloud = made["candidates"][0].clone();
    cloud.as_object_mut().unwrap().remove("worker");
    cloud["provider"] = json!({"namespace": "ns", "name": "cloud"});
    made["candidates"].as_array_mut().unwrap().push(cloud);
    made["fallbacks"] = json!([2, 1]);
    let evicted = json!({"who": "w5", "model": "tokenizer", "reason": "evicted"});
    made["removed"].as_array_mut().unwrap().push(evicted);
    let slower = json!({"effect": {"others_faster": 12.5}, "removed": []});
    made["ruled"]["rules"][0]["steps"].as_array_mut().unwrap().push(slower);
    decision["request_id"] = json!("twice \u{1b}[31m");
    decision["ending"] = Value::Null;
    decision
}

async fn decisions(extract::Path(id): extract::Path<String>) -> impl IntoResponse {
    let [decision, rejection] = examples();
    let decisions = match id.as_str() {
        "one" => vec![decision],
        "rejected" => vec![rejection],
        "a/b c?" => vec![many(), decision],
        _ => Vec::new(),
    };
    let status = if decisions.is_empty() { StatusCode::NOT_FOUND } else { StatusCode::OK };
    let (kept, oldest) =
        if id == "nothing-yet" { (0, None) } else { (1000, Some("2026-11-30T18:20:18.300Z")) };
    (status, Json(json!({"decisions": decisions, "kept": kept, "oldest": oldest})))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_decision_is_explained() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server = axum::serve(listener, Router::new().route("/api/decisions/{*id}", get(decisions)));
    let run = move || {
        let explain = |id: &str, more: &[&str]| {
            kinfctl(&[&["explain", "--request-id", id, "--admin", &address], more].concat())
        };
        let mut snapshots = Snapshots::default();
        for (name, id) in [("one", "one"), ("rejected", "rejected"), ("twice", "a/b c?")] {
            snapshots.hold(&format!("decisions/{name}.txt"), &explain(id, &[]).whole());
        }
        for format in ["json", "yaml"] {
            snapshots.hold(&format!("decisions/{format}.txt"), &explain("one", &["-o", format]).whole());
        }
        snapshots.hold("decisions/unknown.txt", &explain("nobody", &[]).whole());
        snapshots.hold("decisions/nothing-yet.txt", &explain("nothing-yet", &[]).whole());
        snapshots.done();
        let elsewhere = kinfctl(&["explain", "--request-id", "r", "--admin", &format!("{address}/other")]);
        assert!(elsewhere.code == 1 && elsewhere.err.contains("is no admin listener"), "{elsewhere:?}");
    };
    tokio::select! {
        served = server.into_future() => served.unwrap(),
        ran = spawn_blocking(run) => ran.unwrap(),
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let ran = kinfctl(&["explain", "--request-id", "r", "--admin", "http://127.0.0.1:1"]);
    let want = "kinfctl: --admin http://127.0.0.1:1/ is not reached. ";
    assert!(ran.code == 1 && ran.err.starts_with(want), "{ran:?}");
    for args in [
        &["explain", "--request-id", "r", "files/llama.yaml"][..],
        &["explain", "--request-id", "r", "--model", "m", "--pool", "p", "--policies", "f"],
        &["explain", "files/llama.yaml", "--admin", "http://127.0.0.1:1"],
        &["explain", "--request-id", "r", "--admin", "127.0.0.1"],
    ] {
        assert_eq!(kinfctl(args).code, 2, "{args:?}");
    }
}
