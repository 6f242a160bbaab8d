//! What the machine answers, and its encoding as ext_proc messages.
//!
//! Invariant: the pick's header and metadata carry the same value. Chunks hold at most [`CHUNK_BYTES`] bytes.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::{
    config::core::v3::{HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction},
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
    types::{Decision, ErrorShape, Rejection},
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
    /// To the response's headers; a decision there is explained.
    ResponseHeaders {
        /// What is explained.
        decision: Option<Arc<Decision>>,
        /// The body will have another length than they say, not known yet.
        resized: bool,
    },
    /// To a body that is not echoed.
    ResponseBody(Option<NewBody>),
    /// A piece of the response's body, sent back.
    ResponseChunk(Chunk),
    /// To the response's trailers.
    ResponseTrailers,
    /// The client is answered by us that it is turned away, and nothing else follows.
    Immediate(Rejection, ErrorShape),
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
            Self::ResponseHeaders { decision, resized } => {
                let changes = decision.is_some() || resized;
                let mutation = changes.then(|| HeaderMutation {
                    set_headers: decision.as_deref().map(explain).unwrap_or_default(),
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
            Self::Immediate(rejection, shape) => {
                (Response::ImmediateResponse(immediate(&rejection, shape)), None)
            }
            Self::Answer(body) => (Response::ImmediateResponse(answer(&body)), None),
        };
        ProcessingResponse {
            dynamic_metadata: pick
                .and_then(|pick| pick.destination)
                .map(|destination| metadata::nested(names::LB_NAMESPACE, names::DESTINATION, destination)),
            response: Some(response),
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

fn immediate(rejection: &Rejection, shape: ErrorShape) -> ImmediateResponse {
    let mut set_headers = vec![set(names::CONTENT_TYPE, b"application/json".to_vec())];
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

fn explain(decision: &Decision) -> Vec<HeaderValueOption> {
    let primary = decision.primary();
    let tenth = |value: f64| ((value * 10.0).round() / 10.0).to_string();
    let degraded: Vec<_> = decision.lacks().map(|degradation| degradation.label()).collect();
    let mut out = vec![
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::types::ErrorKind;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_cut_body_is_the_same_body(length in 0..4 * CHUNK_BYTES, last: bool) {
            let bytes: Bytes = (0..length).map(|i| i as u8).collect();
            let chunks: Vec<_> = cut(bytes.clone(), last).collect();
            let joined: Vec<u8> = chunks.iter().flat_map(|chunk| chunk.bytes.clone()).collect();
            prop_assert_eq!(joined, bytes);
            prop_assert!(chunks.iter().all(|chunk| chunk.bytes.len() <= CHUNK_BYTES));
            prop_assert_eq!(chunks.iter().filter(|chunk| chunk.last).count(), usize::from(last));
            prop_assert_eq!(chunks.last().is_some_and(|chunk| chunk.last), last);
            prop_assert_eq!(chunks.len(), length.div_ceil(CHUNK_BYTES).max(usize::from(last)));
        }
    }

    #[test]
    fn every_rejection_is_a_whole_answer() {
        for kind in ErrorKind::ALL {
            let reply = Reply::Immediate(Rejection::new(kind, "why"), ErrorShape::Anthropic).encode();
            let Some(Response::ImmediateResponse(answer)) = reply.response else { panic!("{kind:?}") };
            assert_eq!(answer.status.map(|status| status.code), Some(i32::from(kind.http_status())));
            let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(body["error"]["message"], "why");
            let sent = answer.headers.unwrap().set_headers;
            let has = |name| sent.iter().any(|h| h.header.as_ref().is_some_and(|h| h.key == name));
            assert!(has(names::CONTENT_TYPE));
            assert_eq!(has(names::RETRY_AFTER), kind.retry_after_secs().is_some());
        }
    }

    fn common(reply: Reply) -> CommonResponse {
        match reply.encode().response {
            Some(Response::RequestHeaders(headers) | Response::ResponseHeaders(headers)) => headers.response,
            Some(Response::RequestBody(body) | Response::ResponseBody(body)) => body.response,
            other => panic!("{other:?}"),
        }
        .unwrap()
    }

    #[test]
    fn a_new_body_tells_its_length_where_it_is_all_there() {
        let new =
            |bytes, whole| Reply::ResponseBody(Some(NewBody { bytes: Bytes::from_static(bytes), whole }));
        let edit = Edit { body: Some(Bytes::from_static(b"abc")), ..Edit::default() };
        let table = [
            (Reply::RequestBody(edit), Some(Mutation::Body(b"abc".to_vec())), Some("3")),
            (new(b"abcd", true), Some(Mutation::Body(b"abcd".to_vec())), Some("4")),
            (new(b"abcd", false), Some(Mutation::Body(b"abcd".to_vec())), None),
            (new(b"", false), Some(Mutation::ClearBody(true)), None),
            (Reply::ResponseBody(None), None, None),
            (Reply::RequestBody(Edit::default()), None, None),
        ];
        for (reply, body, length) in table {
            let told = format!("{reply:?}");
            let common = common(reply);
            assert_eq!(common.body_mutation.and_then(|new| new.mutation), body, "{told}");
            let sent = common.header_mutation.map(|headers| headers.set_headers).unwrap_or_default();
            let want: Vec<_> = length
                .map(|length| set(names::CONTENT_LENGTH, length.as_bytes().to_vec()))
                .into_iter()
                .collect();
            assert_eq!(sent, want, "{told}");
        }
        let headers = |resized| common(Reply::ResponseHeaders { decision: None, resized }).header_mutation;
        assert_eq!(headers(true).unwrap().remove_headers, [names::CONTENT_LENGTH]);
        assert_eq!(headers(false), None);
    }

    #[test]
    fn the_pick_is_in_header_and_metadata_alike() {
        let pick = Picked {
            destination: Some("1.2.3.4:80,5.6.7.8:80".into()),
            backend: "workerset/set".into(),
            outward: None,
        };
        let edit = Edit { pick: Some(pick), remove: vec![names::DESTINATION], body: None };
        for reply in [Reply::RequestHeaders(edit.clone()), Reply::RequestBody(edit)] {
            let want =
                metadata::nested(names::LB_NAMESPACE, names::DESTINATION, "1.2.3.4:80,5.6.7.8:80".into());
            assert_eq!(reply.clone().encode().dynamic_metadata, Some(want));
            let common = common(reply);
            assert!(common.clear_route_cache);
            let mutation = common.header_mutation.unwrap();
            assert_eq!(mutation.remove_headers, [names::DESTINATION]);
            let sent: Vec<_> = mutation.set_headers.into_iter().filter_map(|option| option.header).collect();
            let sent: Vec<_> = sent.iter().map(|h| (h.key.as_str(), h.raw_value.as_slice())).collect();
            let wanted: [(_, &[u8]); 2] =
                [(names::DESTINATION, b"1.2.3.4:80,5.6.7.8:80"), ("x-kinference-backend", b"workerset/set")];
            assert_eq!(sent, wanted);
        }
    }
}
