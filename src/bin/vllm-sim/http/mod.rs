//! The HTTP front: vLLM 0.32's endpoints over one engine of one or more ranks.
//!
//! Owner of the routes and of what they share. Tokenization runs off the async thread, which also paces the engine.

mod ask;
mod error;
mod generate;
mod render;
mod reply;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::{get, post},
};
use prometheus::Registry;
use serde_json::{Map, Value, json};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{
    args::Args,
    engine::hash::Lora,
    kv_socket::KEPT_BATCHES,
    metrics,
    ranks::{Rank, Ranks},
    tokenizer::Tokenizer,
};
use ask::{Api, Ask};
use error::ApiError;

/// What all handlers share.
pub struct AppState {
    /// The command line.
    pub args: Args,
    /// The model's tokenizer.
    pub tokenizer: Tokenizer,
    /// The engine's ranks.
    pub ranks: Ranks,
    /// The series of `/metrics`.
    pub registry: Registry,
    /// Requests being answered.
    pub in_flight: AtomicUsize,
    /// Requests so far.
    pub requests: AtomicU64,
}

/// Whom a request is for.
struct Addressee {
    /// The name in the body.
    asked: Option<String>,
    /// The same, or the base model's.
    model: String,
    lora: Option<Lora>,
}

impl AppState {
    /// The adapter that a body asks for, if it is not for the base model.
    fn resolve(&self, body: &Map<String, Value>) -> Result<Addressee, ApiError> {
        let asked = body.get("model").and_then(Value::as_str);
        let model = asked.unwrap_or(&self.args.model);
        let lora = (1..).zip(&self.args.lora).find(|(_, name)| *name == model);
        if model != self.args.model && lora.is_none() {
            return Err(ApiError::unknown_model(model, &self.args.model));
        }
        let lora = lora.map(|(id, name)| Lora { id, name: name.as_str().into() });
        Ok(Addressee { asked: asked.map(Into::into), model: model.to_owned(), lora })
    }

    /// Reads a request's body, up to its tokens.
    async fn read(self: &Arc<Self>, api: Api, body: Bytes) -> Result<(Addressee, Ask), ApiError> {
        let state = Arc::clone(self);
        blocking(move || {
            let body = object(&body)?;
            let addressee = state.resolve(&body)?;
            let ask = Ask::read(api, &body, &state.tokenizer)?;
            if ask.prompts.iter().any(|prompt| prompt.len() > state.args.max_model_len) {
                return Err(ApiError::too_long(state.args.max_model_len));
            }
            Ok((addressee, ask))
        })
        .await
    }

    /// An id of the API's form, made of the caller's `x-request-id` if there is one.
    fn request_id(&self, api: Api, headers: &HeaderMap) -> String {
        let prefix = match api {
            Api::Chat | Api::Messages => "chatcmpl-",
            Api::Completions => "cmpl-",
            Api::Responses => "resp_",
        };
        let count = self.requests.fetch_add(1, Ordering::Relaxed);
        match headers
            .get("x-request-id")
            .and_then(|id| id.to_str().ok())
            .filter(|id| !id.contains(['"', '\\']))
        {
            Some(id) => format!("{prefix}{id}"),
            None => format!("{prefix}{:016x}", xxh3_64_with_seed(&count.to_le_bytes(), self.args.seed)),
        }
    }
}

/// Counts a request in `/load` as long as it lives.
struct InFlight(Arc<AppState>);

impl InFlight {
    fn new(state: Arc<AppState>) -> Self {
        state.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(state)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All routes.
pub fn router(state: Arc<AppState>) -> Router {
    let mut router = Router::new()
        .route("/health", get(async || ()))
        .route("/version", get(async || Json(json!({"version": "0.32.0"}))))
        .route("/load", get(load))
        .route("/metrics", get(serve_metrics))
        .route("/v1/models", get(models))
        .route("/kv_event_sources", get(kv_event_sources))
        .route("/reset_prefix_cache", post(reset_prefix_cache))
        .route("/tokenize", post(render::tokenize))
        .route("/detokenize", post(render::detokenize));
    for (path, api) in [
        ("/v1/chat/completions", Api::Chat),
        ("/v1/completions", Api::Completions),
        ("/v1/responses", Api::Responses),
        ("/v1/messages", Api::Messages),
    ] {
        let generate =
            async move |State(state), headers, body| generate::generate(api, state, headers, body).await;
        let render = async move |State(state), headers, body| render::render(api, state, headers, body).await;
        router = router.route(path, post(generate)).route(&format!("{path}/render"), post(render));
    }
    router.layer(DefaultBodyLimit::disable()).with_state(state)
}

async fn load(State(state): State<Arc<AppState>>) -> Json<Value> {
    Json(json!({"server_load": state.in_flight.load(Ordering::Relaxed)}))
}

async fn reset_prefix_cache(State(state): State<Arc<AppState>>) {
    state.ranks.all().iter().for_each(|rank| rank.engine.reset_prefix_cache());
}

async fn serve_metrics(State(state): State<Arc<AppState>>) -> Result<impl IntoResponse, ApiError> {
    let text = metrics::render(&state.registry).map_err(ApiError::internal)?;
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text))
}

async fn models(State(state): State<Arc<AppState>>) -> Json<Value> {
    let Args { model, model_dir, max_model_len, lora, .. } = &state.args;
    let created = unix_seconds();
    let entry = |id: &str, root: &str, parent: Option<&str>| {
        json!({
            "id": id, "object": "model", "created": created, "owned_by": "vllm", "root": root, "parent": parent,
            "max_model_len": parent.is_none().then_some(max_model_len), "permission": [],
        })
    };
    let mut data = vec![entry(model, &model_dir.to_string_lossy(), None)];
    data.extend(lora.iter().map(|name| entry(name, name, Some(model))));
    Json(json!({"object": "list", "data": data}))
}

async fn kv_event_sources(State(state): State<Arc<AppState>>) -> Json<Value> {
    let source = |rank: &Rank| {
        let endpoint = rank.kv_events.as_ref()?;
        Some(json!({
            "enable_kv_cache_events": true, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": rank.replay,
            "buffer_steps": KEPT_BATCHES, "hwm": 100_000, "max_queue_size": 100_000, "topic": state.args.topic,
        }))
    };
    let ranks = state.ranks.all().iter().enumerate();
    Json(ranks.filter_map(|(number, rank)| Some((number.to_string(), source(rank)?))).collect())
}

/// Seconds since 1970.
fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// A body as a JSON object.
fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    serde_json::from_slice(body).map_err(|error| ApiError::invalid(error.to_string(), None))
}

/// Runs what takes long off the async thread.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?
}
