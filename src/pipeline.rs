//! The one path from a request to a `Decision`: parse, resolve candidates, tokenize, predict, pick, reserve.

use std::sync::Arc;

use bytes::Bytes;

use crate::types::{Decision, Outcome, Rejection, RequestKind, Usage};

/// What a front door knows of a request.
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
    /// The InferencePool that the route belongs to.
    pub pool: Option<Arc<str>>,
    /// Only these `ip:port` may be picked, where the proxy says so.
    pub subset: Option<Vec<String>>,
    /// The body.
    pub body: IncomingBody,
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

/// A decision with the load that it reserved. Dropping it releases the load as a cancelled request.
pub struct Placement {
    /// What was decided.
    pub decision: Arc<Decision>,
}

impl Placement {
    /// A placement that reserves no load (mock mode, and tests of what comes after a decision).
    pub fn unreserved(decision: Arc<Decision>) -> Self {
        Self { decision }
    }

    /// The first byte of a streamed answer's body went by.
    pub fn first_token(&mut self) {}

    /// Who really serves it, as the proxy reports (`ip:port`): the load moves there.
    pub fn served_by(&mut self, _endpoint: &str) {}

    /// It ended.
    pub fn finish(self, _outcome: Outcome, _usage: Option<Usage>) {}

    /// The id of a stored response was seen (`/v1/responses`): later requests naming it stick to the worker.
    pub fn made_response(&mut self, _id: &str) {}
}

/// The pipeline.
pub struct Pipeline {}

impl Pipeline {
    /// Decides where a request goes and reserves its load there. Returns within the deadline, if need be
    /// with a pick on load alone that says so.
    ///
    /// # Errors
    /// A [`Rejection`] to answer the client with.
    pub async fn decide(&self, _incoming: Incoming) -> Result<Placement, Rejection> {
        Err(Rejection::new(crate::types::ErrorKind::NoWorker, "no worker"))
    }
}
