//! What a front door knows of a request when the decision is due, and what may become of its body.

use std::sync::Arc;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    config::BodyMetadata,
    prompt::{Declared, Splice},
    types::RequestKind,
};

/// A request, as a front door hands it over.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// `x-request-id`, or one of our own.
    pub request_id: Arc<str>,
    /// By method and path.
    pub kind: RequestKind,
    /// `content-type`
    pub content_type: Option<String>,
    /// `content-encoding`
    pub content_encoding: Option<String>,
    /// Whose request it is, where a trusted source says so.
    pub tenant: Option<Arc<str>>,
    /// Semantic tags, from a trusted source.
    pub tags: Vec<Arc<str>>,
    /// The InferencePool that the route belongs to: `name`, or `namespace/name`.
    pub pool: Option<Arc<str>>,
    /// Only these `ip:port` may be picked, where the proxy says so.
    pub subset: Option<Vec<String>>,
    /// None of these `ip:port` may be picked.
    pub exclude: Vec<String>,
    /// The model to route by, whatever the body names: the body is then made to name it.
    pub model: Option<Arc<str>>,
    /// We see the response, so that the first token of a streamed answer is not missed. Otherwise its prefill counts as
    /// over once it was predicted to be, unless somebody tells of the token before.
    pub sees_response: bool,
    /// When its head was read.
    pub began: Instant,
    /// The `traceparent` of the proxy's span.
    pub traceparent: Option<Arc<str>>,
    /// The body.
    pub body: IncomingBody,
}

impl Incoming {
    /// The model that it asks for, as far as that is known without its body.
    pub(super) fn asks_for(&self) -> Option<Arc<str>> {
        match (&self.model, &self.kind) {
            (None, RequestKind::Models(Some(only))) => Some(only.as_str().into()),
            (model, _) => model.clone(),
        }
    }

    /// Takes over what its body says of it, as far as that is allowed and nobody who is trusted has said it.
    pub(super) fn adopt(&mut self, declared: &mut Declared, allowed: BodyMetadata) {
        if allowed.tenant && self.tenant.is_none() {
            self.tenant = declared.tenant.take();
        }
        if allowed.tags && self.tags.is_empty() {
            self.tags = std::mem::take(&mut declared.tags);
        }
        if allowed.pool && self.pool.is_none() {
            self.pool = declared.pool.take();
        }
    }
}

/// The body of a request when the decision is due.
#[derive(Clone, Debug)]
pub enum IncomingBody {
    /// All of it, as it came.
    Full(Bytes),
    /// There is none.
    Empty,
    /// It comes after the decision (STREAMED mode).
    Unseen,
}

/// How the body has to change before it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// At these places of the body as it came.
    Splices(Vec<Splice>),
    /// To this one, which has no content encoding any more.
    Whole(Bytes),
}

/// What a body says of itself before it is to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// The model that it names.
    pub model: Option<Arc<str>>,
    /// The client wants a streamed answer.
    pub stream: bool,
}
