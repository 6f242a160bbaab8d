//! Tokenization against engines on real sockets that answer as recorded ones did.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::atomic::{AtomicUsize, Ordering},
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::post};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::*;
use crate::types::Api;

fn fixture(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(path)
}

/// A recorded request and answer.
fn pair(name: &str) -> Value {
    let file = fixture("vllm-0.32/render").join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn request(api: Api, body: &Value) -> ParsedRequest {
    ParsedRequest::read(api, &Bytes::from(body.to_string())).unwrap()
}

fn ids(of: &Value) -> Vec<u32> {
    serde_json::from_value(of.clone()).unwrap()
}

/// An engine that answers by path, counts what it is asked, and can be told to hang.
struct Engine {
    url: String,
    answers: Mutex<HashMap<&'static str, (u16, String)>>,
    asked: Mutex<Vec<(String, Value)>>,
    hangs: AtomicUsize,
    _server: JoinSet<()>,
}

impl Engine {
    async fn start() -> Arc<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let engine = Arc::new_cyclic(|weak: &std::sync::Weak<Self>| {
            let router = Router::new().fallback(post(answer)).with_state(weak.clone());
            let mut server = JoinSet::new();
            server.spawn(async move { axum::serve(listener, router).await.unwrap() });
            Self {
                url,
                answers: Mutex::default(),
                asked: Mutex::default(),
                hangs: AtomicUsize::new(0),
                _server: server,
            }
        });
        for path in ["/v1/chat/completions/render", "/v1/completions/render"] {
            engine.says(path, 404, json!({"detail": "Not Found"}));
        }
        engine
    }

    fn says(&self, path: &'static str, status: u16, body: impl ToString) {
        self.answers.lock().insert(path, (status, body.to_string()));
    }

    fn asked(&self, path: &str) -> usize {
        self.asked.lock().iter().filter(|(asked, _)| asked == path).count()
    }

    fn last_body(&self) -> Value {
        self.asked.lock().last().unwrap().1.clone()
    }

    fn target(&self, mode: TokenizeMode) -> TokenizeTarget {
        let http_url = Some(self.url.clone());
        TokenizeTarget {
            mode,
            model: MODEL.into(),
            lora_name: Some("adapter".into()),
            http_url,
            render_url: None,
        }
    }
}

async fn answer(
    State(engine): State<std::sync::Weak<Engine>>,
    uri: axum::http::Uri,
    body: Bytes,
) -> impl IntoResponse {
    let engine = engine.upgrade().unwrap();
    engine.asked.lock().push((uri.path().to_owned(), serde_json::from_slice(&body).unwrap()));
    if engine.hangs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
        std::future::pending::<()>().await;
    }
    let (status, body) = engine.answers.lock().get(uri.path()).cloned().unwrap_or((500, String::new()));
    (StatusCode::from_u16(status).unwrap(), body)
}

const RENDER: &str = "/v1/chat/completions/render";
/// The directory of the recorded model's tokenizer, among the fixtures.
const MODEL: &str = "tokenizer";

fn tokenizers(metrics: &Metrics) -> Arc<Tokenizers> {
    let config = TokenizeConfig { mount_dir: Some(fixture("")), ..TokenizeConfig::default() };
    Tokenizers::new(config.clone(), http_client(&config).unwrap(), metrics)
}

/// Waits until the metrics say so.
async fn metric(metrics: &Metrics, line: &str) {
    let met = async {
        while !metrics.render().lines().any(|it| it == line) {
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(10), met).await;
    assert!(waited.is_ok(), "{line} is not in\n{}", metrics.render());
}

#[tokio::test]
async fn recorded_answers_are_the_prompt() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    for (name, api, path) in [
        ("chat_cache_salt", Api::ChatCompletions, RENDER),
        ("chat_tools", Api::ChatCompletions, RENDER),
        ("comp_string", Api::Completions, "/v1/completions/render"),
        ("comp_list_str", Api::Completions, "/v1/completions/render"),
        ("resp_string", Api::Responses, "/v1/responses/render"),
        ("msg_simple", Api::Messages, "/v1/messages/render"),
    ] {
        let pair = pair(name);
        engine.says(path, 200, &pair["response"]);
        let tokens = tokenizers
            .tokenize(&request(api, &pair["request"]), &engine.target(TokenizeMode::Render))
            .await
            .unwrap();
        let list = pair["response"]
            .get("token_ids")
            .or_else(|| pair["response"].as_array()?.last()?.get("token_ids"));
        assert_eq!(*tokens.ids, ids(list.unwrap()), "{name}");
        assert_eq!(tokens.lora_name.as_deref(), Some("adapter"));
        assert_eq!(tokens.cache_salt.as_deref(), pair["request"].get("cache_salt").and_then(Value::as_str));
        assert_eq!(engine.last_body(), pair["request"], "the body goes to the engine as it came");
    }
    metric(&metrics, "kinference_tokenize_total{means=\"render\",outcome=\"ok\"} 6").await;
}

#[tokio::test]
async fn images_are_asked_for_by_hash_alone() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    let mut sent = pair("chat_image_part_textmodel")["request"].clone();
    let features =
        json!({"mm_hashes": {"image": ["h"]}, "mm_placeholders": {"image": [{"offset": 1, "length": 2}]}});
    engine.says(RENDER, 200, json!({"token_ids": [1, 7, 7, 2], "features": features}));
    let chat = request(Api::ChatCompletions, &sent);
    let tokens = tokenizers.tokenize(&chat, &engine.target(TokenizeMode::Render)).await.unwrap();
    assert_eq!((&*tokens.images[0].hash, tokens.images[0].offset, tokens.images[0].length), ("h", 1, 2));
    assert_eq!(tokens.credit_until, None);
    sent["return_mm_kwargs"] = json!(false);
    assert_eq!(engine.last_body(), sent);
}

#[tokio::test]
async fn closed_render_falls_back_and_is_remembered() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    let (closed, answer) = (pair("disabled_403"), pair("tokenize_chat"));
    engine.says(RENDER, 403, &closed["response"]);
    engine.says("/tokenize", 200, &answer["response"]);
    let (chat, target) =
        (request(Api::ChatCompletions, &answer["request"]), engine.target(TokenizeMode::Render));
    for _ in 0..3 {
        let tokens = tokenizers.tokenize(&chat, &target).await.unwrap();
        assert_eq!(*tokens.ids, ids(&answer["response"]["tokens"]));
    }
    assert_eq!((engine.asked(RENDER), engine.asked("/tokenize")), (1, 3));
    assert_eq!(engine.last_body()["messages"], answer["request"]["messages"]);
    assert_eq!(engine.last_body()["model"], "tiny");
    // Another API of the same engine has its own path: 404 for a route that is not there.
    let text = json!({"model": "tiny", "prompt": ["a", "longest", "b"], "add_special_tokens": false});
    tokenizers.tokenize(&request(Api::Completions, &text), &target).await.unwrap();
    assert_eq!(engine.asked("/v1/completions/render"), 1);
    assert_eq!(
        engine.last_body(),
        json!({"model": "tiny", "prompt": "longest", "add_special_tokens": false})
    );
    // Restarted with the flag: noticed when the recheck is due.
    engine.says(RENDER, 200, &pair("chat_system")["response"]);
    tokenizers.tokenize(&chat, &target).await.unwrap();
    assert_eq!(engine.asked(RENDER), 1);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    tokenizers.tokenize(&chat, &target).await.unwrap();
    tokenizers.tokenize(&chat, &target).await.unwrap();
    assert_eq!(engine.asked(RENDER), 3);
}

#[tokio::test]
async fn verdicts_and_failures_are_told_apart() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    let target = engine.target(TokenizeMode::Render);
    for name in ["chat_unknown_model", "chat_too_long", "chat_image_part_textmodel"] {
        let pair = pair(name);
        let status = u16::try_from(pair["status"].as_u64().unwrap()).unwrap();
        engine.says(RENDER, status, &pair["response"]);
        let error =
            tokenizers.tokenize(&request(Api::ChatCompletions, &pair["request"]), &target).await.unwrap_err();
        let message = pair["response"]["error"]["message"].as_str().unwrap().to_owned();
        assert_eq!(error, TokenizeError::Rejected { status, message });
    }
    let chat = request(Api::ChatCompletions, &pair("chat_simple")["request"]);
    for (status, body) in
        [(200, "<html>"), (200, "[]"), (200, "{\"token_ids\":[-1]}"), (503, "no"), (200, "")]
    {
        engine.says(RENDER, status, body);
        let error = tokenizers.tokenize(&chat, &target).await.unwrap_err();
        assert!(matches!(error, TokenizeError::Engine(_)), "{status} {body}: {error}");
    }
    assert_eq!(engine.asked("/tokenize"), 0);
    let nowhere = TokenizeTarget { http_url: None, ..target.clone() };
    assert!(matches!(tokenizers.tokenize(&chat, &nowhere).await, Err(TokenizeError::Engine(_))));
    let gone = TokenizeTarget { http_url: Some("http://127.0.0.1:1".into()), ..target };
    assert!(matches!(tokenizers.tokenize(&chat, &gone).await, Err(TokenizeError::Engine(_))));
}

#[tokio::test]
async fn a_hanging_engine_costs_only_the_request_that_waits() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    let (simple, target) = (pair("chat_simple"), engine.target(TokenizeMode::Render));
    engine.says(RENDER, 200, &simple["response"]);
    engine.hangs.store(1, Ordering::SeqCst);
    let chat = request(Api::ChatCompletions, &simple["request"]);
    let waiting = tokenizers.tokenize(&chat, &target);
    assert!(tokio::time::timeout(Duration::from_millis(50), waiting).await.is_err());
    assert!(tokenizers.tokenize(&chat, &target).await.is_ok());
}

#[tokio::test]
async fn token_ids_and_stored_contexts_ask_nobody() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    let target = engine.target(TokenizeMode::Render);
    let tokens = |body: Value| {
        let (tokenizers, target) = (Arc::clone(&tokenizers), target.clone());
        async move { tokenizers.tokenize(&request(Api::Completions, &body), &target).await.unwrap() }
    };
    assert_eq!(*tokens(json!({"prompt": [[1], [2, 3], [4, 5]]})).await.ids, [2, 3]);
    assert_eq!(*tokens(json!({"prompt": [1, 2, 3], "truncate_prompt_tokens": 2})).await.ids, [2, 3]);
    let right = json!({"prompt": [1, 2, 3], "truncate_prompt_tokens": 2, "truncation_side": "right"});
    assert_eq!(*tokens(right).await.ids, [1, 2]);
    assert_eq!(*tokens(json!({"prompt": [1, 2], "truncate_prompt_tokens": -1})).await.ids, [1, 2]);
    let embeds = tokens(json!({"prompt": [1], "prompt_embeds": "AA"})).await;
    assert_eq!(embeds.credit_until, Some(0));
    let stored = request(Api::Responses, &pair("resp_prev")["request"]);
    assert!(matches!(tokenizers.tokenize(&stored, &target).await, Err(TokenizeError::Unsupported(_))));
    assert!(engine.asked.lock().is_empty());
}

#[tokio::test]
async fn comparisons_count_what_differs_and_never_delay() {
    let (engine, metrics) = (Engine::start().await, Metrics::new());
    let tokenizers = tokenizers(&metrics);
    let (simple, target) = (pair("chat_simple"), engine.target(TokenizeMode::Compare));
    let chat = request(Api::ChatCompletions, &simple["request"]);
    let compare = async || {
        let tokens = tokenizers.tokenize(&chat, &target).await.unwrap();
        assert_eq!(*tokens.ids, ids(&simple["response"]["token_ids"]), "local's tokens are used");
    };
    let counted =
        |outcome: &str, n| format!("kinference_tokenize_comparisons_total{{outcome=\"{outcome}\"}} {n}");
    engine.says(RENDER, 200, &simple["response"]);
    compare().await;
    metric(&metrics, &counted("equal", 1)).await;
    engine.says(RENDER, 200, json!({"token_ids": [1, 85, 7]}));
    compare().await;
    metric(&metrics, &counted("different", 1)).await;
    engine.says(RENDER, 500, "");
    compare().await;
    metric(&metrics, &counted("failed", 1)).await;
    engine.hangs.store(9, Ordering::SeqCst);
    for _ in 0..6 {
        compare().await;
    }
    metric(&metrics, &counted("skipped", 2)).await;
}

#[tokio::test]
async fn a_model_without_a_tokenizer_is_an_error_and_warming_it_is_none() {
    let metrics = Metrics::new();
    let tokenizers = tokenizers(&metrics);
    let chat = request(Api::ChatCompletions, &pair("chat_simple")["request"]);
    let target = |model: &str| TokenizeTarget {
        mode: TokenizeMode::Local,
        model: model.into(),
        lora_name: None,
        http_url: None,
        render_url: None,
    };
    tokenizers.warm(MODEL).await;
    tokenizers.warm("other").await;
    assert!(tokenizers.tokenize(&chat, &target(MODEL)).await.is_ok());
    let error = tokenizers.tokenize(&chat, &target("other")).await.unwrap_err();
    assert!(matches!(error, TokenizeError::NoTokenizer { .. }), "{error}");
}
