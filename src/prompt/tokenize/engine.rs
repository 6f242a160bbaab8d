//! Tokenization by an engine over HTTP: render, else `/tokenize`.
//!
//! An engine whose render endpoint is closed or missing is remembered and asked again once a minute:
//! a restart with another version or flag changes the answer.

use std::{collections::HashMap, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;
use reqwest::{Response, StatusCode, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    TokenizeError, TokenizeTarget,
    answer::{error_message, rendered, tokenized},
    local::cut,
    metrics::Means,
};
use crate::{
    prompt::{
        chat::{Conversation, conversation},
        request::{ParsedRequest, Prompts},
    },
    types::{Api, PromptTokens},
};

/// How long an engine without render is not asked for it.
const RENDER_RECHECK: Duration = Duration::from_secs(60);
/// The longest wait for one answer, whatever the caller's deadline.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest answer that is read, in bytes.
const MAX_ANSWER: usize = 64 << 20;

/// Engines by how they tokenize.
pub(super) struct Engines {
    client: reqwest::Client,
    /// Where render was refused, until when it is not asked for again.
    without_render: Mutex<HashMap<(String, Api), Instant>>,
}

impl Engines {
    pub(super) fn new(client: reqwest::Client) -> Self {
        Self { client, without_render: Mutex::default() }
    }

    /// The tokens of a request, by render where the engine has it, else by `/tokenize`.
    pub(super) async fn tokenize(
        &self,
        request: &ParsedRequest,
        target: &TokenizeTarget,
    ) -> (Means, Result<PromptTokens, TokenizeError>) {
        let engine = target.http_url.as_deref().map(|url| url.trim_end_matches('/'));
        let render = target.render_url.as_deref().map(render_base).or(engine);
        let Some(render) = render else {
            return (Means::Render, Err(TokenizeError::Engine("it has no HTTP address".to_owned())));
        };
        if self.may_render(render, request.api) {
            match self.render(render, request).await {
                Ok(Some(tokens)) => return (Means::Render, Ok(tokens)),
                Ok(None) => self.forget_render(render, request.api),
                Err(error) => return (Means::Render, Err(error)),
            }
        }
        (Means::Tokenize, self.by_tokenize(engine.unwrap_or(render), request).await)
    }

    /// Whether render is worth asking for. When a recheck is due, one request makes it for all.
    fn may_render(&self, base: &str, api: Api) -> bool {
        match self.without_render.lock().get_mut(&(base.to_owned(), api)) {
            Some(until) if *until > Instant::now() => false,
            Some(until) => {
                *until = Instant::now() + RENDER_RECHECK;
                true
            }
            None => true,
        }
    }

    fn forget_render(&self, base: &str, api: Api) {
        let now = Instant::now();
        let mut without = self.without_render.lock();
        without.retain(|_, until| *until > now);
        if without.insert((base.to_owned(), api), now + RENDER_RECHECK).is_none() {
            tracing::info!(engine = base, path = api.path(), "no render here: /tokenize is used instead");
        }
    }

    /// `None` when the engine has no render.
    async fn render(
        &self,
        base: &str,
        request: &ParsedRequest,
    ) -> Result<Option<PromptTokens>, TokenizeError> {
        let url = format!("{base}{}{RENDER}", request.api.path());
        let (status, body) = self.post(&url, render_body(request)).await?;
        match status {
            StatusCode::OK => {
                self.without_render.lock().remove(&(base.to_owned(), request.api));
                let tokens = rendered(&body, request.images > 0);
                tokens
                    .map(Some)
                    .ok_or_else(|| TokenizeError::Engine("its render answer is not understood".to_owned()))
            }
            // An unknown model is also a 404, in the engine's own format; a path that is not there is not.
            StatusCode::NOT_FOUND if error_message(&body).is_some() => Err(refused(status, &body)),
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Ok(None),
            _ => Err(refused(status, &body)),
        }
    }

    async fn by_tokenize(&self, base: &str, request: &ParsedRequest) -> Result<PromptTokens, TokenizeError> {
        let (status, body) = self.post(&format!("{base}/tokenize"), tokenize_body(request)?).await?;
        if status != StatusCode::OK {
            return Err(refused(status, &body));
        }
        let not_understood = || TokenizeError::Engine("its /tokenize answer is not understood".to_owned());
        let mut tokens = tokenized(&body, request.images > 0).ok_or_else(not_understood)?;
        cut(request, &mut tokens);
        Ok(tokens)
    }

    async fn post(&self, url: &str, body: Bytes) -> Result<(StatusCode, Vec<u8>), TokenizeError> {
        let failed = |error: reqwest::Error| TokenizeError::Engine(error.to_string());
        let request = self.client.post(url).timeout(ANSWER_TIMEOUT).header(CONTENT_TYPE, "application/json");
        let response = request.body(body).send().await.map_err(failed)?;
        Ok((response.status(), capped(response).await?))
    }
}

/// The body as it came. Of images only the hashes and places are asked for: their pixels would be in the
/// answer too.
fn render_body(request: &ParsedRequest) -> Bytes {
    const HASHES_ONLY: &[u8] = br#"{"return_mm_kwargs":false,"#;
    match request.body.iter().position(|byte| *byte == b'{') {
        Some(open) if request.images > 0 => [HASHES_ONLY, &request.body[open + 1..]].concat().into(),
        _ => request.body.clone(),
    }
}

/// What every API's path gets.
const RENDER: &str = "/render";

/// A render override may be a base, or the whole of one of its endpoints.
fn render_base(url: &str) -> &str {
    let url = url.trim_end_matches('/');
    let endpoint = |api: &Api| url.strip_suffix(RENDER)?.strip_suffix(api.path());
    Api::ALL.iter().find_map(endpoint).unwrap_or(url)
}

async fn capped(mut response: Response) -> Result<Vec<u8>, TokenizeError> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend_from_slice(&chunk),
            Ok(Some(_)) => return Err(TokenizeError::Engine("its answer is too large".to_owned())),
            Ok(None) => return Ok(body),
            Err(error) => return Err(TokenizeError::Engine(error.to_string())),
        }
    }
}

/// 4xx is a verdict on the request, anything else a failure of the engine.
fn refused(status: StatusCode, body: &[u8]) -> TokenizeError {
    let message = error_message(body).unwrap_or_default();
    if status.is_client_error() {
        TokenizeError::Rejected { status: status.as_u16(), message }
    } else {
        TokenizeError::Engine(format!("status {status} {message}"))
    }
}

/// The same prompt for `/tokenize`. Of several texts it takes the longest.
fn tokenize_body(request: &ParsedRequest) -> Result<Bytes, TokenizeError> {
    let mut body = match &request.prompts {
        Prompts::Texts(texts) => {
            let longest = texts.iter().rev().max_by_key(|text| text.len());
            let longest = longest.ok_or_else(|| TokenizeError::Unsupported("there is no text".to_owned()))?;
            json!({"prompt": longest, "add_special_tokens": request.add_special_tokens.unwrap_or(true)})
        }
        Prompts::Conversation => messages_body(conversation(request).map_err(TokenizeError::Unsupported)?),
        Prompts::TokenIds(_) => return Err(TokenizeError::Unsupported("it is tokens already".to_owned())),
    };
    if let Some(model) = &request.model {
        body["model"] = json!(&**model);
    }
    Ok(body.to_string().into())
}

fn messages_body(conversation: Conversation) -> Value {
    let mut kwargs = conversation.kwargs;
    if let Some(documents) = conversation.documents {
        kwargs.insert("documents".to_owned(), Value::Array(documents));
    }
    let mut body = json!({
        "messages": conversation.messages,
        "add_generation_prompt": conversation.add_generation_prompt,
        "continue_final_message": conversation.continue_final_message,
        "add_special_tokens": conversation.add_special_tokens,
    });
    if let Some(tools) = conversation.tools {
        body["tools"] = Value::Array(tools);
    }
    if !kwargs.is_empty() {
        body["chat_template_kwargs"] = Value::Object(kwargs);
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_render_override_is_a_base_or_an_endpoint() {
        for url in [
            "http://r:1",
            "http://r:1/",
            "http://r:1/v1/chat/completions/render",
            "http://r:1/v1/messages/render/",
        ] {
            assert_eq!(render_base(url), "http://r:1");
        }
        assert_eq!(render_base("http://r:1/render"), "http://r:1/render");
    }
}
