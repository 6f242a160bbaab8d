//! The endpoints that generate: a body in, a request to the engine, an answer or a stream of chunks out.
//!
//! A client that goes away drops the answer and with it the ticket, which aborts the request in the engine.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json,
    body::{Body, Bytes},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use futures::StreamExt;

use super::{
    AppState, InFlight,
    ask::{Api, DEFAULT_MAX_TOKENS},
    error::ApiError,
    reply::{Reply, Usage},
};
use crate::{
    engine::hash::Salts,
    handle::{Ticket, Token},
};

/// Serves one request of `api`.
///
/// # Errors
/// As vLLM answers requests that it does not accept.
pub async fn generate(
    api: Api,
    state: Arc<AppState>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    let in_flight = InFlight::new(Arc::clone(&state));
    let (request, ask) = state.read(api, body).await?;
    let longest = ask.prompts.iter().map(Vec::len).max().unwrap_or(0);
    let room = (state.args.max_model_len - longest).max(1);
    let max_tokens =
        ask.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS).clamp(1, u32::try_from(room).unwrap_or(u32::MAX));
    let reply = Reply {
        api,
        id: state.request_id(api, &headers),
        created: super::unix_seconds(),
        model: request.model,
    };
    let block = state.args.paged_block_size();
    let usage = Usage {
        prompt: ask.prompts.iter().map(Vec::len).sum(),
        cacheable: ask.prompts.iter().map(|prompt| prompt.len() / block * block).sum(),
        ..Usage::default()
    };
    let choices = ask.prompts.len();
    let salts = Salts { lora: request.lora, cache_salt: ask.cache_salt };
    let rank = state.ranks.pick(&headers).map_err(ApiError::out_of_range)?;
    let ticket = rank.submit(ask.prompts, max_tokens, &salts);
    let answer = Answer { state, reply, usage, ticket, seen: vec![false; choices], _in_flight: in_flight };
    if ask.stream {
        Ok(answer.stream(ask.include_usage))
    } else {
        Ok(Json(answer.whole().await).into_response())
    }
}

/// A request on its way through the engine.
struct Answer {
    state: Arc<AppState>,
    reply: Reply,
    usage: Usage,
    ticket: Ticket,
    /// Which choices have had a token.
    seen: Vec<bool>,
    _in_flight: InFlight,
}

impl Answer {
    fn count(&mut self, token: &Token) {
        if !std::mem::replace(&mut self.seen[token.choice], true) {
            self.usage.cached += token.output.cached;
        }
        self.usage.completion += 1;
    }

    async fn whole(mut self) -> serde_json::Value {
        let mut texts = vec![String::new(); self.seen.len()];
        while let Some(token) = self.ticket.next().await {
            self.count(&token);
            texts[token.choice] += self.state.tokenizer.word(token.output.token);
        }
        self.reply.whole(&texts, &self.usage)
    }

    fn stream(self, include_usage: bool) -> Response {
        let announcement = Some(self.reply.announcement()).filter(|text| !text.is_empty());
        let announcement = futures::stream::iter(announcement.map(|text| Ok(Bytes::from(text))));
        let tokens = futures::stream::unfold(Some(self), move |answer| async move {
            let mut answer = answer?;
            let chunk = answer.chunk(include_usage).await?;
            let rest = (!answer.ticket.is_done()).then_some(answer);
            Some((Ok::<_, Infallible>(Bytes::from(chunk)), rest))
        });
        ([(CONTENT_TYPE, "text/event-stream; charset=utf-8")], Body::from_stream(announcement.chain(tokens)))
            .into_response()
    }

    /// All tokens that are there, and what goes before and after them. Waits for one.
    async fn chunk(&mut self, include_usage: bool) -> Option<String> {
        let mut token = self.ticket.next().await?;
        let mut out = String::new();
        loop {
            self.count(&token);
            if self.usage.completion == 1 {
                out += &self.reply.opening(&self.usage);
            }
            let text = self.state.tokenizer.word(token.output.token);
            out += &self.reply.token(token.choice, text, token.output.finished);
            let Some(next) = self.ticket.ready() else { break };
            token = next;
        }
        if self.ticket.is_done() {
            out += &self.reply.closing(&self.usage, include_usage);
        }
        Some(out)
    }
}
