//! Requests in the words of who serves them: to the engine that renders, and on their way.

use std::sync::Arc;

use axum::{Json, Router, extract::State, routing::post};
use bytes::Bytes;
use kinference::{
    config::TokenizeMode,
    fleet::Worker,
    pipeline::{Incoming, IncomingBody, Rewrite},
    prompt::spliced,
    types::RequestKind,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt, net::TcpListener, task::JoinSet};

use crate::{
    pools::{asks, site},
    site::{Site, chat, profile, worker, worker_set},
};

/// `standard`, behind which is `qwen-32b` of the set `big`.
fn published(site: &Site) {
    let backends = json!([{"workerSet": {"name": "big", "model": "qwen-32b"}}]);
    site.enforce(&[(
        "InferencePool",
        "chat",
        json!({"models": [{"name": "standard", "backends": backends}]}),
    )]);
}

fn with_body(body: impl Into<Bytes>, incoming: Incoming) -> Incoming {
    Incoming { body: IncomingBody::Full(body.into()), pool: Some("chat".into()), ..incoming }
}

#[tokio::test]
async fn an_engine_renders_a_body_that_names_its_own_model() {
    let seen: Arc<Mutex<Vec<Bytes>>> = Arc::default();
    let answer = |State(seen): State<Arc<Mutex<Vec<Bytes>>>>, body: Bytes| async move {
        seen.lock().push(body);
        Json(json!({"token_ids": (0..100).collect::<Vec<u32>>(), "model": "any"}))
    };
    let router = Router::new().route("/v1/chat/completions/render", post(answer)).with_state(seen.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, router).await });
    let p = profile("p", |p| p.tokenize_mode = TokenizeMode::Render);
    let (site, set) = (Site::of(&p, 0), worker_set("big", &p));
    let engine = Worker { http_url: Some(url), model_name: "qwen-32b".into(), ..worker(&set, 1) };
    site.registry.replace_set("big", vec![engine]).unwrap();
    published(&site);
    let body =
        r#"{ "temperature":1e400,"model" :"standard", "messages":[{"role":"user","content":"\u00e9"}]}"#;
    let decision = site.decide(with_body(body, chat())).await;
    assert_eq!((decision.prompt_tokens, &decision.degraded[..]), (Some(100), &[][..]));
    assert_eq!(*seen.lock(), [body.replace("standard", "qwen-32b")]);
}

#[tokio::test(start_paused = true)]
async fn an_encoded_body_goes_on_decoded() {
    let site = site(|_| {});
    published(&site);
    let body = r#"{"model":"standard","prompt":[1,2,3]}"#;
    let mut packed = Vec::new();
    async_compression::tokio::bufread::GzipEncoder::new(body.as_bytes())
        .read_to_end(&mut packed)
        .await
        .unwrap();
    let request = Incoming { content_encoding: Some("gzip".into()), ..with_body(packed, asks("standard")) };
    let placement = site.place(request).await;
    assert_eq!(placement.rewrite, Some(Rewrite::Whole(body.replace("standard", "qwen-32b").into())));
}

#[tokio::test(start_paused = true)]
async fn a_model_given_beside_the_body_is_the_one_that_is_asked_for() {
    let site = site(|_| {});
    published(&site);
    for named in ["gone", "standard", "qwen-32b"] {
        let body = json!({"model": named, "prompt": [1, 2, 3]}).to_string();
        let request = Incoming { model: Some("standard".into()), ..with_body(body.clone(), asks("")) };
        let placement = site.place(request).await;
        assert_eq!(placement.client_model.as_deref(), Some("standard"));
        let sent = match &placement.rewrite {
            Some(Rewrite::Splices(splices)) => spliced(body.as_bytes(), splices),
            Some(Rewrite::Whole(_)) => panic!("it is not encoded"),
            None => body.into(),
        };
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!(sent, json!({"model": "qwen-32b", "prompt": [1, 2, 3]}), "{named}");
    }
}

#[tokio::test(start_paused = true)]
async fn other_calls_are_worded_too() {
    let site = site(|_| {});
    published(&site);
    let body = r#"{"input":["a"],"model":"standard"}"#;
    let placement =
        site.place(Incoming { kind: RequestKind::Other, ..with_body(body, asks("standard")) }).await;
    let Some(Rewrite::Splices(splices)) = &placement.rewrite else { panic!("{:?}", placement.rewrite) };
    assert_eq!(spliced(body.as_bytes(), splices), body.replace("standard", "qwen-32b"));
    assert_eq!(placement.decision.candidates.len(), 2);
}
