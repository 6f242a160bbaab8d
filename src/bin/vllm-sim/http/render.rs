//! Endpoints that only tokenize: render (scale-out), `/tokenize` and `/detokenize`.

use std::sync::Arc;

use axum::{Json, body::Bytes, extract::State, http::HeaderMap};
use serde_json::{Map, Value, json};

use super::{
    AppState,
    ask::{self, Api, Ask},
    error::ApiError,
};

/// `POST /v1/.../render`
///
/// # Errors
/// 403 without `--enable-scale-out`; otherwise as generation would answer.
pub async fn render(
    api: Api,
    state: Arc<AppState>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Value>, ApiError> {
    if !state.args.enable_scale_out {
        return Err(ApiError::scale_out_disabled());
    }
    let (request, ask) = state.read(api, body).await?;
    let id = state.request_id(api, &headers);
    let several = ask.prompts.len() > 1;
    let one = |(index, tokens): (usize, &Vec<u32>)| {
        let id = if several { format!("{id}-{index}") } else { id.clone() };
        rendered(&id, request.asked.as_deref(), &ask, tokens)
    };
    let mut all = ask.prompts.iter().enumerate().map(one);
    Ok(Json(match api {
        Api::Completions => all.collect(),
        _ => all.next().unwrap_or_default(),
    }))
}

fn rendered(id: &str, model: Option<&str>, ask: &Ask, tokens: &[u32]) -> Value {
    json!({
        "request_id": id, "token_ids": tokens, "token_offsets": null, "features": null, "content_parts": null,
        "sampling_params": {"max_tokens": ask.max_tokens}, "model": model, "output_mode": "tokens", "stream": ask.stream,
        "cache_salt": ask.cache_salt, "priority": 0,
    })
}

/// `POST /tokenize`
///
/// # Errors
/// 400 for a body that holds neither a prompt nor messages, 404 for an unknown model.
pub async fn tokenize(State(state): State<Arc<AppState>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    super::blocking(move || {
        let body = super::object(&body)?;
        state.resolve(&body)?;
        let tokens = match body.get("prompt").and_then(Value::as_str) {
            Some(text) => {
                let special = body.get("add_special_tokens").and_then(Value::as_bool).unwrap_or(true);
                state.tokenizer.encode(text, special).map_err(ApiError::internal)?
            }
            None => state
                .tokenizer
                .encode_chat(&ask::chat(&body)?)
                .map_err(|error| ApiError::invalid(error.to_string(), None))?,
        };
        let spell = body.get("return_token_strs").and_then(Value::as_bool).unwrap_or(false);
        let spelled =
            |tokens: &[u32]| tokens.iter().map(|&id| state.tokenizer.spelling(id)).collect::<Vec<_>>();
        Ok(Json(json!({
            "count": tokens.len(), "max_model_len": state.args.max_model_len,
            "token_strs": spell.then(|| spelled(&tokens)), "tokens": tokens,
        })))
    })
    .await
}

/// `POST /detokenize`
///
/// # Errors
/// 400 without a list of ids.
pub async fn detokenize(State(state): State<Arc<AppState>>, body: Bytes) -> Result<Json<Value>, ApiError> {
    let body: Map<String, Value> = super::object(&body)?;
    let ids: Option<Vec<u32>> = body.get("tokens").and_then(|ids| serde_json::from_value(ids.clone()).ok());
    let ids = ids.ok_or(ApiError::missing("body.tokens", body.len()))?;
    let prompt = state.tokenizer.decode(&ids).map_err(|error| ApiError::invalid(error.to_string(), None))?;
    Ok(Json(json!({ "prompt": prompt })))
}
