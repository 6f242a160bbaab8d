//! What the machine answers, and its encoding as ext_proc messages.
//!
//! Invariant: the pick's header and metadata carry the same value. Chunks hold at most [`CHUNK_BYTES`] bytes.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::{
    config::core::v3::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
    extensions::filters::http::ext_proc::v3::ProcessingMode,
    service::ext_proc::v3::{
        BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, ImmediateResponse,
        ProcessingResponse, StreamedBodyResponse, TrailersResponse, body_mutation::Mutation,
        processing_response::Response,
    },
    r#type::v3::HttpStatus,
};
use serde_json::Value;

use super::{inbound::Chunk, metadata, names};
use crate::{
    serve::outward::Outward,
    types::{Decision, ErrorShape, Rejection, brief},
};

/// The most that one duplex answer carries: proxies refuse messages over 64 KiB.
pub const CHUNK_BYTES: usize = 62_000;

/// What an answer changes of the request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// The pick; `None` while it is not decided or has been said.
    pub pick: Option<Picked>,
    /// Headers to remove.
    pub remove: Vec<&'static str>,
    /// The body in place of the one that is answered.
    pub body: Option<Bytes>,
}

/// What goes on in place of a response's body, or of the piece of it that is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBody {
    /// The bytes; may be none.
    pub bytes: Bytes,
    /// They are all of it: its length is told.
    pub whole: bool,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Picked {
    /// `ip:port[,ip:port...]`, best first; none where a provider is picked.
    pub destination: Option<String>,
    /// Who serves it, as routes name it.
    pub backend: String,
    /// To a provider.
    pub outward: Option<Outward>,
}

impl Picked {
    /// Of a request for that path.
    pub fn new(decision: &Decision, path: &str) -> Self {
        Self {
            destination: decision.destinations(),
            backend: decision.primary().target.backend(),
            outward: Outward::of(decision, Some(path)),
        }
    }

    fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let destination = self.destination.iter().map(|value| (names::DESTINATION, value.as_str()));
        let outward = self.outward.iter().flat_map(Outward::headers);
        destination.chain([(names::BACKEND, self.backend.as_str())]).chain(outward)
    }
}

/// A decision that the answer explains.
#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    /// It.
    pub decision: Arc<Decision>,
    /// The id of its request.
    pub request_id: Arc<str>,
}

/// One message back to the proxy.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To the request's headers.
    RequestHeaders(Edit),
    /// To a body that is not echoed.
    RequestBody(Edit),
    /// A piece of the request's body, sent back.
    RequestChunk(Chunk),
    /// To the request's trailers; of an edit, only the metadata has effect.
    RequestTrailers(Edit),
    /// To the response's headers.
    ResponseHeaders {
        /// What they explain.
        explained: Option<Explained>,
        /// The body will have another length than they say, not known yet.
        resized: bool,
        /// The body is not to be sent to us.
        unwatched: bool,
    },
    /// To a body that is not echoed.
    ResponseBody(Option<NewBody>),
    /// A piece of the response's body, sent back.
    ResponseChunk(Chunk),
    /// To the response's trailers.
    ResponseTrailers,
    /// The client is answered by us that it is turned away, and nothing else follows. With the request's id, where that is
    /// to be told.
    Immediate(Rejection, ErrorShape, Option<Arc<str>>),
    /// The client is answered by us with what it asks for, and nothing else follows.
    Answer(Value),
}

/// Cuts a body into chunks that a proxy takes; only the last one may be marked last. Empty bytes yield a chunk
/// only to carry that mark.
pub fn cut(mut bytes: Bytes, last: bool) -> impl Iterator<Item = Chunk> {
    let mut open = last || !bytes.is_empty();
    std::iter::from_fn(move || {
        if !open {
            return None;
        }
        let piece = bytes.split_to(bytes.len().min(CHUNK_BYTES));
        open = !bytes.is_empty();
        Some(Chunk { bytes: piece, last: last && !open })
    })
}

impl Reply {
    /// The message on the wire.
    pub fn encode(self) -> ProcessingResponse {
        let unwatched = matches!(self, Self::ResponseHeaders { unwatched: true, .. });
        let (response, pick) = match self {
            Self::RequestHeaders(edit) => {
                (Response::RequestHeaders(HeadersResponse { response: Some(edit.common()) }), edit.pick)
            }
            Self::RequestBody(edit) => {
                (Response::RequestBody(BodyResponse { response: Some(edit.common()) }), edit.pick)
            }
            Self::RequestChunk(chunk) => (Response::RequestBody(echo(chunk)), None),
            Self::RequestTrailers(edit) => {
                (Response::RequestTrailers(TrailersResponse { header_mutation: Some(cleaned()) }), edit.pick)
            }
            Self::ResponseHeaders { explained, resized, .. } => {
                let changes = explained.is_some() || resized;
                let mutation = changes.then(|| HeaderMutation {
                    set_headers: explained.as_ref().map(explain).unwrap_or_default(),
                    remove_headers: resized.then(|| names::CONTENT_LENGTH.to_owned()).into_iter().collect(),
                });
                (Response::ResponseHeaders(headers(mutation)), None)
            }
            Self::ResponseBody(new) => (
                Response::ResponseBody(BodyResponse {
                    response: new.map(NewBody::common).or_else(|| Some(CommonResponse::default())),
                }),
                None,
            ),
            Self::ResponseChunk(chunk) => (Response::ResponseBody(echo(chunk)), None),
            Self::ResponseTrailers => (Response::ResponseTrailers(TrailersResponse::default()), None),
            Self::Immediate(rejection, shape, request_id) => {
                (Response::ImmediateResponse(immediate(&rejection, shape, request_id.as_deref())), None)
            }
            Self::Answer(body) => (Response::ImmediateResponse(answer(&body)), None),
        };
        ProcessingResponse {
            dynamic_metadata: pick
                .and_then(|pick| pick.destination)
                .map(|destination| metadata::nested(names::LB_NAMESPACE, names::DESTINATION, destination)),
            response: Some(response),
            // Its default is to send nothing more of the response. Of the request's side all is over by then.
            mode_override: unwatched.then(ProcessingMode::default),
            ..Default::default()
        }
    }
}

impl Edit {
    /// Removals come first when a proxy applies them, so a header may be both removed and set. A pick lets the proxy
    /// look for its route again, because that may depend on the backend.
    fn common(&self) -> CommonResponse {
        let set_headers = self.pick.iter().flat_map(Picked::headers);
        let set_headers = set_headers.map(|(name, value)| set(name, value.as_bytes().to_vec()));
        let outward = self.pick.iter().filter(|pick| pick.outward.is_some());
        let left_behind = outward.flat_map(|_| &names::LEFT_BEHIND);
        let length = self.body.as_ref().map(length);
        let changes = self.pick.is_some() || !self.remove.is_empty() || length.is_some();
        CommonResponse {
            header_mutation: changes.then(|| HeaderMutation {
                set_headers: set_headers.chain(length).collect(),
                remove_headers: self
                    .remove
                    .iter()
                    .chain(left_behind)
                    .map(|name| (*name).to_owned())
                    .collect(),
            }),
            clear_route_cache: self.pick.is_some(),
            body_mutation: self.body.as_ref().map(instead),
            ..Default::default()
        }
    }
}

impl NewBody {
    fn common(self) -> CommonResponse {
        let length = self.whole.then(|| length(&self.bytes));
        CommonResponse {
            header_mutation: length
                .map(|length| HeaderMutation { set_headers: vec![length], ..Default::default() }),
            body_mutation: Some(instead(&self.bytes)),
            ..Default::default()
        }
    }
}

/// Wherever a request goes, no trailer of it is needed that proves who the client is, or that only we may set.
fn cleaned() -> HeaderMutation {
    let names = names::LEFT_BEHIND.iter().chain(&names::OWNED);
    HeaderMutation { remove_headers: names.map(|name| (*name).to_owned()).collect(), ..Default::default() }
}

fn headers(header_mutation: Option<HeaderMutation>) -> HeadersResponse {
    HeadersResponse { response: Some(CommonResponse { header_mutation, ..Default::default() }) }
}

fn echo(chunk: Chunk) -> BodyResponse {
    let body_mutation = BodyMutation {
        mutation: Some(Mutation::StreamedResponse(StreamedBodyResponse {
            body: chunk.bytes.into(),
            end_of_stream: chunk.last,
            ..Default::default()
        })),
    };
    BodyResponse {
        response: Some(CommonResponse { body_mutation: Some(body_mutation), ..Default::default() }),
    }
}

fn instead(bytes: &Bytes) -> BodyMutation {
    let mutation = if bytes.is_empty() { Mutation::ClearBody(true) } else { Mutation::Body(bytes.to_vec()) };
    BodyMutation { mutation: Some(mutation) }
}

fn length(bytes: &Bytes) -> HeaderValueOption {
    set(names::CONTENT_LENGTH, bytes.len().to_string().into_bytes())
}

fn immediate(rejection: &Rejection, shape: ErrorShape, request_id: Option<&str>) -> ImmediateResponse {
    let mut set_headers = vec![set(names::CONTENT_TYPE, b"application/json".to_vec())];
    set_headers.extend(request_id.map(named));
    if let Some(secs) = rejection.kind.retry_after_secs() {
        set_headers.push(set(names::RETRY_AFTER, secs.to_string().into_bytes()));
    }
    ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(rejection.kind.http_status()) }),
        headers: Some(HeaderMutation { set_headers, remove_headers: Vec::new() }),
        body: rejection.body(shape).to_string().into_bytes(),
        grpc_status: None,
        details: format!("kinference_{}", rejection.kind.label()),
    }
}

fn answer(body: &Value) -> ImmediateResponse {
    let set_headers = vec![set(names::CONTENT_TYPE, b"application/json".to_vec())];
    ImmediateResponse {
        status: Some(HttpStatus { code: 200 }),
        headers: Some(HeaderMutation { set_headers, remove_headers: Vec::new() }),
        body: body.to_string().into_bytes(),
        grpc_status: None,
        details: "kinference_models".to_owned(),
    }
}

/// The id under which a decision is remembered.
fn named(request_id: &str) -> HeaderValueOption {
    set(names::EXPLAIN_REQUEST, brief(request_id).as_bytes().to_vec())
}

fn explain(Explained { decision, request_id }: &Explained) -> Vec<HeaderValueOption> {
    let primary = decision.primary();
    let tenth = |value: f64| ((value * 10.0).round() / 10.0).to_string();
    let degraded: Vec<_> = decision.lacks().map(|degradation| degradation.label()).collect();
    let mut out = vec![
        named(request_id),
        set(names::EXPLAIN_WORKER, primary.target.label().as_bytes().to_vec()),
        set(names::EXPLAIN_TTFT, tenth(primary.prediction.ttft_ms).into_bytes()),
        set(names::EXPLAIN_CACHED, tenth(primary.prediction.cached_blocks).into_bytes()),
    ];
    if let Some(tokens) = decision.prompt_tokens {
        out.push(set(names::EXPLAIN_TOKENS, tokens.to_string().into_bytes()));
    }
    if !degraded.is_empty() {
        out.push(set(names::EXPLAIN_DEGRADED, degraded.join(",").into_bytes()));
    }
    if let Some(ruled) = &decision.ruled {
        out.extend(primary.model.iter().map(|model| set(names::EXPLAIN_MODEL, model.as_bytes().to_vec())));
        out.extend(ruled.decided_by().map(|rule| set(names::EXPLAIN_RULE, rule.name().into_bytes())));
    }
    out
}

fn set(key: &str, value: Vec<u8>) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue { key: key.to_owned(), raw_value: value, ..Default::default() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
