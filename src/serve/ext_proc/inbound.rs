//! ext_proc messages parsed into what the machine acts on: one enum, no optional fields left to check.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::{
    extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode,
    service::ext_proc::v3::{
        HttpBody, HttpHeaders, ProcessingRequest, ProtocolConfiguration, processing_request::Request,
    },
};

use super::{head::Head, headers::Headers, metadata, names};
use crate::{config::ExtProcConfig, types::is_json};

/// How a proxy sends a body and wants its chunks answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyMode {
    /// The sender does not say. Answered like duplex, which senders too old to say so read as "continue".
    #[default]
    Inferred,
    /// The body is not sent.
    None,
    /// Chunk by chunk, each one answered; headers are answered first.
    Streamed,
    /// Whole, in one message; headers are answered first.
    Buffered,
    /// Like buffered, but cut where the proxy's buffer ends.
    BufferedPartial,
    /// Chunks in, chunks out, answered whenever we like.
    Duplex,
}

impl BodyMode {
    /// Whether chunks are answered by sending them back, not by one "continue" each.
    pub const fn echoes(self) -> bool {
        matches!(self, Self::Duplex | Self::Inferred)
    }

    fn of(mode: i32) -> Self {
        match BodySendMode::try_from(mode) {
            Ok(BodySendMode::None) => Self::None,
            Ok(BodySendMode::Streamed) => Self::Streamed,
            Ok(BodySendMode::Buffered) => Self::Buffered,
            Ok(BodySendMode::BufferedPartial) => Self::BufferedPartial,
            Ok(BodySendMode::FullDuplexStreamed) => Self::Duplex,
            Ok(BodySendMode::Grpc) | Err(_) => Self::Inferred,
        }
    }
}

/// The body modes of both directions, fixed by the first message of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Of the request's body.
    pub request: BodyMode,
    /// Of the response's body.
    pub response: BodyMode,
}

impl Modes {
    /// As the first message says.
    pub fn of(config: Option<&ProtocolConfiguration>) -> Self {
        config.map_or_else(Self::default, |config| Self {
            request: BodyMode::of(config.request_body_mode),
            response: BodyMode::of(config.response_body_mode),
        })
    }
}

/// A piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The bytes; may be none.
    pub bytes: Bytes,
    /// Nothing follows, no trailers either.
    pub last: bool,
}

impl From<HttpBody> for Chunk {
    fn from(body: HttpBody) -> Self {
        Self { bytes: body.body.into(), last: body.end_of_stream }
    }
}

/// What the response's headers say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// `:status`
    pub status: u16,
    /// `content-type`, lower case.
    pub content_type: String,
    /// There is a content encoding other than `identity`.
    pub encoded: bool,
    /// There is no body.
    pub last: bool,
    /// Who served it, `ip:port`, where the proxy says so.
    pub served: Option<String>,
}

/// What a response's body is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// One JSON value.
    Json,
    /// Server-sent events.
    Events,
    /// Nothing that we read.
    Other,
}

/// A message of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The request begins; `last`: it has no body.
    RequestHeaders {
        /// What they say.
        head: Arc<Head>,
        /// There is no body.
        last: bool,
    },
    /// A piece of its body.
    RequestBody(Chunk),
    /// The request ends with trailers.
    RequestTrailers,
    /// The response begins.
    ResponseHeaders(ResponseHead),
    /// A piece of its body.
    ResponseBody(Chunk),
    /// The response ends with trailers.
    ResponseTrailers,
}

impl Message {
    /// Reads a message; `None` where it carries nothing that is to be answered.
    pub fn parse(
        message: ProcessingRequest,
        config: &ExtProcConfig,
        own_id: impl FnOnce() -> Arc<str>,
    ) -> Option<Self> {
        if message.observability_mode {
            return None;
        }
        let metadata = message.metadata_context.as_ref();
        Some(match message.request? {
            Request::RequestHeaders(headers) => Self::RequestHeaders {
                head: Arc::new(Head::parse(&headers, metadata, config, own_id)),
                last: headers.end_of_stream,
            },
            Request::RequestBody(body) => Self::RequestBody(body.into()),
            Request::RequestTrailers(_) => Self::RequestTrailers,
            Request::ResponseHeaders(headers) => {
                let served = metadata::text(metadata, names::LB_NAMESPACE, names::SERVED);
                Self::ResponseHeaders(ResponseHead::parse(&headers, served))
            }
            Request::ResponseBody(body) => Self::ResponseBody(body.into()),
            Request::ResponseTrailers(_) => Self::ResponseTrailers,
        })
    }
}

impl ResponseHead {
    fn parse(message: &HttpHeaders, served: Option<&str>) -> Self {
        let headers = Headers::of(message);
        let encoding = headers.joined(names::CONTENT_ENCODING);
        Self {
            status: headers.get(names::STATUS).and_then(|status| status.parse().ok()).unwrap_or_default(),
            content_type: headers.get(names::CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase(),
            encoded: encoding.is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity")),
            last: message.end_of_stream,
            served: served.map(str::to_owned),
        }
    }

    /// What its body is made of, under the content encoding if there is one.
    pub fn media(&self) -> Media {
        let essence = self.content_type.split(';').next().unwrap_or_default().trim();
        match essence {
            "text/event-stream" => Media::Events,
            _ if is_json(essence) => Media::Json,
            _ => Media::Other,
        }
    }
}
