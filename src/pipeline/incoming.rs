//! What a front door knows of a request when the decision is due.

use std::sync::Arc;

use bytes::Bytes;

use crate::types::RequestKind;

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
