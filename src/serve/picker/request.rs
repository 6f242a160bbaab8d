//! A PickRequest as the pipeline takes it.
//!
//! Invariant: every byte that the pipeline is given is held in the `BodyBudget` until the decision is made.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use super::{bodies::Pushed, compose};
use crate::{
    pipeline::{Incoming, IncomingBody},
    prompt::{Body, BodyBudget},
    serve::{
        proto::{BodyHead, EndpointSubset, InlineBody, PickRequest, pick_request::Prompt},
        status::Refusal,
    },
    types::{Api, ErrorKind, RequestKind},
};

/// A request, ready to be decided.
pub struct Asked {
    /// For the pipeline.
    pub incoming: Incoming,
    /// Its path with its query, where that is known.
    pub path: Option<String>,
    /// The body's place in the budget: to be dropped after the decision.
    pub held: Option<Body>,
}

/// A request of which only its body and the body's head are known.
pub fn of_body(Pushed { head, body }: &mut Pushed) -> Incoming {
    let text = |text: &str| Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned);
    let method = if head.method.is_empty() { "POST" } else { &head.method };
    let bytes = body.bytes();
    Incoming {
        request_id: head.request_id.as_str().into(),
        kind: RequestKind::of(method, &head.path),
        content_type: text(&head.content_type),
        content_encoding: text(&head.content_encoding),
        body: if bytes.is_empty() { IncomingBody::Empty } else { IncomingBody::Full(bytes) },
        ..blank()
    }
}

/// Reads a request. `claim` takes a pushed body by its id, `own_id` names a request that has no id.
///
/// # Errors
/// A body that can't be claimed, a prompt that is not what it should be, or a cap.
pub fn read(
    mut request: PickRequest,
    budget: &Arc<BodyBudget>,
    claim: impl FnOnce(&str) -> Result<Pushed, Refusal>,
    own_id: impl FnOnce() -> String,
) -> Result<Asked, Refusal> {
    let model = Some(request.model.as_str()).filter(|model| !model.is_empty());
    let Asked { incoming, path, held } = match request.prompt.take() {
        None => {
            Asked { incoming: Incoming { model: model.map(Arc::from), ..blank() }, path: None, held: None }
        }
        Some(Prompt::BodyId(id)) => with_body(claim(&id)?, model),
        Some(Prompt::Body(body)) => with_body(inline(budget, body)?, model),
        Some(Prompt::Messages(messages)) => {
            let json = compose::conversation(&messages, &request.model, request.stream)?;
            made(budget, Api::ChatCompletions, json)?
        }
        Some(Prompt::Tokens(tokens)) => {
            // Each takes a digit and a comma at the least: refused before it is written out.
            budget.open().expect_length(tokens.ids.len().saturating_mul(2))?;
            let json = compose::tokenized(&tokens, &request.model, request.stream)?;
            made(budget, Api::Completions, json)?
        }
    };
    let request_id = match (request.request_id.is_empty(), incoming.request_id.is_empty()) {
        (false, _) => request.request_id.into(),
        (true, false) => incoming.request_id.clone(),
        (true, true) => own_id().into(),
    };
    let named = |name: String| Some(name).filter(|name| !name.is_empty()).map(Arc::from);
    let incoming = Incoming {
        request_id,
        tenant: named(request.tenant),
        tags: request.tags.into_iter().map(Arc::from).collect(),
        pool: named(request.inference_pool),
        subset: request.subset.map(|EndpointSubset { endpoints }| endpoints),
        exclude: request.exclude,
        ..incoming
    };
    Ok(Asked { incoming, path, held })
}

fn with_body(mut pushed: Pushed, model: Option<&str>) -> Asked {
    let incoming = Incoming { model: model.map(Arc::from), ..of_body(&mut pushed) };
    let Pushed { head: BodyHead { path, .. }, body } = pushed;
    Asked { incoming, path: Some(path), held: Some(body) }
}

fn inline(budget: &Arc<BodyBudget>, InlineBody { head, body: bytes }: InlineBody) -> Result<Pushed, Refusal> {
    let head: BodyHead =
        head.ok_or_else(|| Refusal::new(ErrorKind::BadRequest, "An inline body needs its head."))?;
    let mut body = budget.open();
    body.push(bytes.into())?;
    Ok(Pushed { head, body })
}

/// A body of our own making; the model is in it.
fn made(budget: &Arc<BodyBudget>, api: Api, json: Vec<u8>) -> Result<Asked, Refusal> {
    let mut body = budget.open();
    let bytes = Bytes::from(json);
    body.push(bytes.clone())?;
    let incoming = Incoming { kind: RequestKind::Inference(api), body: IncomingBody::Full(bytes), ..blank() };
    Ok(Asked { incoming, path: None, held: Some(body) })
}

/// A request of which nothing is known but that its response is not ours to see.
fn blank() -> Incoming {
    Incoming {
        request_id: "".into(),
        kind: RequestKind::Other,
        content_type: None,
        content_encoding: None,
        tenant: None,
        tags: Vec::new(),
        pool: None,
        subset: None,
        exclude: Vec::new(),
        model: None,
        sees_response: false,
        began: Instant::now(),
        traceparent: None,
        body: IncomingBody::Empty,
    }
}
