//! A whole ext_proc stream as a pure state machine: `step(self, event) -> (self, effects)`.
//!
//! Invariant: no sequence of events panics; after an immediate answer nothing is answered.

use std::{mem, sync::Arc};

use serde_json::Value;

use super::{
    effect::Effect,
    inbound::{BodyMode, Chunk, Message, Modes, ResponseHead},
    rename,
    reply::{Explained, Reply},
    request::{self, Placed, Request},
    response::{Known, Response},
};
use crate::types::{Api, Outcome, Rejection, RequestKind};

/// What happens to a stream.
#[derive(Debug)]
pub enum Event {
    /// The proxy says something.
    Message(Message),
    /// No body came for a while after the headers.
    Quiet,
    /// The request was decided.
    Placed(Placed),
    /// The decision turns the request away.
    Rejected(Rejection),
    /// The request is turned away before it was decided.
    Refused(Rejection),
    /// We know the answer ourselves.
    Answered(Value),
}

/// What a stream waits for, where it may wait too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Nothing of the client's.
    None,
    /// The first sign of a body, from a sender that does not say whether one comes before an answer.
    Sign,
    /// More of a body that arrives in pieces.
    Chunk,
    /// A body that the proxy collects.
    Whole,
}

/// Whether the engine keeps the response: later requests name it by the id that its body tells.
pub fn is_stored(kind: &RequestKind) -> bool {
    *kind == RequestKind::Inference(Api::Responses)
}

/// A stream.
#[derive(Default)]
pub struct Machine {
    explain: bool,
    /// Responses' bodies are not to be sent to us, unless something in them is needed.
    unwatched: bool,
    /// The body mode of the response that was to be none.
    unheeded: Option<BodyMode>,
    /// The request's id, where it is to be told.
    request_id: Option<Arc<str>>,
    modes: Modes,
    request: Request,
    response: Response,
    /// What the response will be read with.
    known: Known,
    /// A sign of the request's body came.
    signed: bool,
}

impl Machine {
    /// A new stream; `explain`: tell the decision in response headers.
    pub fn new(modes: Modes, explain: bool) -> Self {
        Self { explain, modes, ..Self::default() }
    }

    /// The same, whose response's body is looked at or not.
    #[must_use]
    pub fn watching(self, watched: bool) -> Self {
        Self { unwatched: !watched, ..self }
    }

    /// One step.
    pub fn step(mut self, event: Event) -> (Self, Vec<Effect>) {
        let effects = match event {
            Event::Message(message) => self.message(message),
            Event::Quiet => self.request(request::Event::Quiet),
            Event::Rejected(rejection) => self.request(request::Event::Rejected(rejection)),
            Event::Refused(rejection) => self.request(request::Event::Refused(rejection)),
            Event::Answered(body) => self.request(request::Event::Answered(body)),
            Event::Placed(placed) => {
                let explained = |request_id| Explained { decision: placed.decision.clone(), request_id };
                self.known.explained = self.request_id.clone().map(explained);
                self.known.client_model = placed.client_model.clone();
                self.request(request::Event::Placed(placed))
            }
        };
        (self, effects)
    }

    /// What it waits for.
    pub fn wait(&self) -> Wait {
        match (&self.request, self.modes.request) {
            (Request::Receiving(_), BodyMode::Inferred) if !self.signed => Wait::Sign,
            (Request::Receiving(_), BodyMode::Inferred | BodyMode::Duplex) | (Request::Draining(_), _) => {
                Wait::Chunk
            }
            (Request::Receiving(_), _) => Wait::Whole,
            _ => Wait::None,
        }
    }

    /// How the response ended if the stream ends now; `None`: it was cancelled, or has been told.
    pub fn cut_off(&self) -> Option<Outcome> {
        self.response.cut_off(self.modes.response)
    }

    fn message(&mut self, message: Message) -> Vec<Effect> {
        match message {
            Message::RequestHeaders { head, last } => {
                self.request_id = self.explain.then(|| head.request_id.clone());
                self.known.stored = is_stored(&head.kind);
                self.known.inner = rename::inner(&head.kind);
                self.request(request::Event::Headers(head, last))
            }
            Message::RequestBody(chunk) => {
                self.signed = true;
                self.request(request::Event::Body(chunk))
            }
            Message::RequestTrailers => self.request(request::Event::Trailers),
            Message::ResponseHeaders(head) => self.response_headers(head),
            Message::ResponseBody(chunk) => self.response_body(chunk),
            Message::ResponseTrailers => self.respond(|response, _| response.trailers()),
        }
    }

    fn response_headers(&mut self, head: ResponseHead) -> Vec<Effect> {
        let mut effects = self.request(request::Event::Overtaken);
        let mut known = mem::take(&mut self.known);
        // Where headers wait for their answer, nothing of the body is on its way yet.
        let waits = matches!(
            self.modes.response,
            BodyMode::Streamed | BodyMode::Buffered | BodyMode::BufferedPartial
        );
        known.unwatched =
            self.unwatched && waits && !head.last && !known.stored && known.client_model.is_none();
        if known.unwatched {
            self.unheeded = Some(mem::replace(&mut self.modes.response, BodyMode::None));
        }
        effects.extend(self.respond(|response, mode| response.headers(head, known, mode)));
        effects
    }

    fn response_body(&mut self, chunk: Chunk) -> Vec<Effect> {
        let unheeded = self.unheeded.take();
        if let Some(mode) = unheeded {
            self.modes.response = mode;
        }
        let mut effects = self.respond(|response, mode| response.body(chunk, mode));
        effects.extend(unheeded.map(|_| Effect::Unheeded));
        effects
    }

    fn request(&mut self, event: request::Event) -> Vec<Effect> {
        let (state, mut effects) = mem::take(&mut self.request).step(event, self.modes.request);
        self.request = state;
        for effect in &mut effects {
            if let Effect::Reply(Reply::Immediate(.., request_id)) = effect {
                request_id.clone_from(&self.request_id);
            }
        }
        if effects.iter().any(|effect| matches!(effect, Effect::Close)) {
            self.response = Response::Closed;
        }
        effects
    }

    fn respond(&mut self, step: impl FnOnce(Response, BodyMode) -> (Response, Vec<Effect>)) -> Vec<Effect> {
        let (state, effects) = step(mem::take(&mut self.response), self.modes.response);
        self.response = state;
        effects
    }
}

#[cfg(test)]
mod tests;
