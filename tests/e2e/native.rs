//! The example client of the native API, run against the real server and engines: no proxy in between.

use serde_json::{Value, json};

use kinference::serve::proto::picker_client::PickerClient;

use crate::{
    proxy::{Call, Done, Gateway},
    stack::{Engine, Router, all},
};

struct Site {
    engines: Vec<Engine>,
    router: Router,
    gateway: Gateway,
}

impl Site {
    async fn start() -> Self {
        let engines: Vec<_> = (0..2).map(|_| Engine::start(&["--speedup", "50"])).collect();
        let router = Router::start(&engines, "");
        router.until("all workers are synced", |f| all(f, |w| w["kv_events"]["state"] == "synced")).await;
        router.until("all workers name models", |f| all(f, |w| w["engine"] == "vllm")).await;
        let picker = PickerClient::connect(format!("http://{}", router.grpc)).await.unwrap();
        Self { engines, router, gateway: Gateway::new(picker) }
    }

    async fn ask(&mut self, model: &str, body: Value) -> (Done, String) {
        let call =
            Call { path: "/v1/chat/completions".into(), model: model.into(), body: body.to_string().into() };
        let mut out = Vec::new();
        let done = self.gateway.proxy(call, &mut out).await.unwrap();
        (done, String::from_utf8(out).unwrap())
    }

    async fn until_idle(&self) {
        self.router.until("load is back to 0", |f| all(f, |w| w["load"]["in_flight"] == 0)).await;
    }
}

fn chat(model: &str, stream: bool) -> Value {
    json!({"model": model, "max_tokens": 5, "stream": stream,
        "stream_options": if stream { json!({"include_usage": true}) } else { Value::Null },
        "messages": [{"role": "user", "content": "Hello there, how are you today?"}]})
}

#[tokio::test]
async fn the_example_proxies_and_tells() {
    let mut site = Site::start().await;
    let (done, answer) = site.ask("", chat("tiny", false)).await;
    let whole: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((done.status, done.usage.unwrap().completion_tokens), (200, 5));
    assert_eq!(whole["usage"]["completion_tokens"], 5);
    let (done, answer) = site.ask("", chat("tiny", true)).await;
    assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");
    assert_eq!(done.usage.unwrap().completion_tokens, 5);
    // The engine knows no such model: the body must have been changed on the way.
    let (done, _) = site.ask("tiny", chat("an-alias", false)).await;
    assert_eq!((done.status, done.worker.starts_with('w')), (200, true));
    site.until_idle().await;
    let counted = [
        ("kinference_picker_events_total{event=\"ended\"}", 3.0),
        ("kinference_picker_events_total{event=\"first_token\"}", 1.0),
        ("kinference_ttft_seconds_count", 1.0),
        ("kinference_requests_total{model=\"tiny\",outcome=\"completed\"", 3.0),
        ("kinference_tokens_total{kind=\"output\"", 15.0),
        ("kinference_decisions_total{basis=\"prompt\"", 3.0),
        ("kinference_body_held_bytes", 0.0),
        ("kinference_picker_picks_held", 0.0),
    ];
    for (series, want) in counted {
        assert_eq!(site.router.metric(series).await, want, "{series}");
    }
}

#[tokio::test]
async fn a_fallback_serves_when_an_engine_is_gone() {
    let mut site = Site::start().await;
    site.engines[0].kill();
    let left = site.engines[1].http.clone();
    // Until it is known to fail, the dead engine may still be picked.
    for _ in 0..6 {
        let (done, _) = site.ask("", chat("tiny", false)).await;
        assert_eq!((done.status, &done.endpoint), (200, &left));
    }
    site.until_idle().await;
}
