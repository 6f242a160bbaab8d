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

/// A request that can't be decided, as far as it was read.
pub struct Refused {
    /// For whoever tells of it.
    pub incoming: Box<Incoming>,
    /// Why.
    pub refusal: Refusal,
}

/// A request of which only its body's head is known.
pub fn of_head(head: &BodyHead) -> Incoming {
    let text = |text: &str| Some(text.trim()).filter(|text| !text.is_empty()).map(str::to_owned);
    let method = if head.method.is_empty() { "POST" } else { &head.method };
    Incoming {
        request_id: head.request_id.as_str().into(),
        kind: RequestKind::of(method, &head.path),
        content_type: text(&head.content_type),
        content_encoding: text(&head.content_encoding),
        ..blank()
    }
}

/// A request of which only its body and the body's head are known.
pub fn of_body(Pushed { head, body }: &mut Pushed) -> Incoming {
    let bytes = body.bytes();
    let body = if bytes.is_empty() { IncomingBody::Empty } else { IncomingBody::Full(bytes) };
    Incoming { body, ..of_head(head) }
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
) -> Result<Asked, Refused> {
    let mut asked = Asked { incoming: blank(), path: None, held: None };
    let prompt = request.prompt.take();
    let composed = matches!(&prompt, Some(Prompt::Messages(_) | Prompt::Tokens(_)));
    let read = prompt.map_or(Ok(()), |prompt| asked.take(prompt, (&request, budget), claim));
    let named = |name: String| Some(name).filter(|name| !name.is_empty()).map(Arc::from);
    let incoming = Incoming {
        request_id: named(request.request_id)
            .or_else(|| Some(asked.incoming.request_id.clone()).filter(|id| !id.is_empty()))
            .unwrap_or_else(|| own_id().into()),
        // A body of our own making names it.
        model: named(request.model).filter(|_| !composed || read.is_err()),
        tenant: named(request.tenant),
        tags: request.tags.into_iter().map(Arc::from).collect(),
        pool: named(request.inference_pool),
        subset: request.subset.map(|EndpointSubset { endpoints }| endpoints),
        exclude: request.exclude,
        ..asked.incoming
    };
    match read {
        Ok(()) => Ok(Asked { incoming, ..asked }),
        Err(refusal) => Err(Refused { incoming: Box::new(incoming), refusal }),
    }
}

impl Asked {
    /// Takes the prompt of a request in. Of one that is refused stays what it said before.
    fn take(
        &mut self,
        prompt: Prompt,
        (request, budget): (&PickRequest, &Arc<BodyBudget>),
        claim: impl FnOnce(&str) -> Result<Pushed, Refusal>,
    ) -> Result<(), Refusal> {
        match prompt {
            Prompt::BodyId(id) => self.has(claim(&id)?),
            Prompt::Body(InlineBody { head, body: bytes }) => {
                let head = head
                    .ok_or_else(|| Refusal::new(ErrorKind::BadRequest, "An inline body needs its head."))?;
                self.incoming = of_head(&head);
                let mut body = budget.open();
                body.push(bytes.into())?;
                self.has(Pushed { head, body });
            }
            Prompt::Messages(messages) => {
                self.incoming.kind = RequestKind::Inference(Api::ChatCompletions);
                let json = compose::conversation(&messages, &request.model, request.stream)?;
                self.made(budget, json)?;
            }
            Prompt::Tokens(tokens) => {
                self.incoming.kind = RequestKind::Inference(Api::Completions);
                // Each takes a digit and a comma at the least: refused before it is written out.
                budget.open().expect_length(tokens.ids.len().saturating_mul(2))?;
                let json = compose::tokenized(&tokens, &request.model, request.stream)?;
                self.made(budget, json)?;
            }
        }
        Ok(())
    }

    fn has(&mut self, mut pushed: Pushed) {
        self.incoming = of_body(&mut pushed);
        let Pushed { head: BodyHead { path, .. }, body } = pushed;
        (self.path, self.held) = (Some(path), Some(body));
    }

    /// A body of our own making.
    fn made(&mut self, budget: &Arc<BodyBudget>, json: Vec<u8>) -> Result<(), Refusal> {
        let mut body = budget.open();
        let bytes = Bytes::from(json);
        body.push(bytes.clone())?;
        (self.incoming.body, self.held) = (IncomingBody::Full(bytes), Some(body));
        Ok(())
    }
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
