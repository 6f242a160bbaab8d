//! What the request's headers and metadata say, read once when they arrive.
//!
//! Invariant: tenant, tags and pool come from a trusted source or not at all.

use std::sync::Arc;

use envoy_types::pb::envoy::{config::core::v3::Metadata, service::ext_proc::v3::HttpHeaders};
use tokio::time::Instant;

use super::{headers::Headers, metadata, names};
use crate::{
    config::ExtProcConfig,
    pipeline::{Incoming, IncomingBody},
    types::{Api, ErrorShape, RequestKind, is_json},
};

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// `x-request-id`, or one of our own.
    pub request_id: Arc<str>,
    /// With its query, as the client asked for it.
    pub path: Arc<str>,
    /// By method and path.
    pub kind: RequestKind,
    /// Whose format the client expects of what we answer, by path and header.
    pub shape: ErrorShape,
    /// `content-type`
    pub content_type: Option<String>,
    /// `content-encoding`
    pub content_encoding: Option<String>,
    /// `content-length`, bytes.
    pub content_length: Option<usize>,
    /// Whose request it is.
    pub tenant: Option<Arc<str>>,
    /// Semantic tags.
    pub tags: Vec<Arc<str>>,
    /// The InferencePool of the route.
    pub pool: Option<Arc<str>>,
    /// The endpoints that may be picked; `None`: all.
    pub subset: Option<Vec<String>>,
    /// The `traceparent` of the proxy's span.
    pub traceparent: Option<Arc<str>>,
    /// When this was read.
    pub began: Instant,
    /// Headers of ours that the client sent: to be removed.
    pub forged: Vec<&'static str>,
}

impl Head {
    /// Reads the first message of a request. `own_id` makes an id for a request without one.
    pub fn parse(
        message: &HttpHeaders,
        metadata: Option<&Metadata>,
        config: &ExtProcConfig,
        own_id: impl FnOnce() -> Arc<str>,
    ) -> Self {
        let headers = Headers::of(message);
        let path = headers.get(names::PATH).unwrap_or_default();
        let trusted = Trusted { metadata, headers: config.trust_headers.then_some(headers) };
        let own = |value: Option<std::borrow::Cow<'_, str>>| value.map(|v| v.into_owned());
        let kind = RequestKind::of(&headers.get(names::METHOD).unwrap_or_default(), &path);
        // Both APIs list their models under one path.
        let anthropic = match kind {
            RequestKind::Models(_) => headers.has(names::ANTHROPIC_VERSION),
            _ => path.starts_with(Api::Messages.path()),
        };
        Self {
            request_id: headers.get(names::REQUEST_ID).map_or_else(own_id, |id| id.as_ref().into()),
            path: path.as_ref().into(),
            kind,
            shape: if anthropic { ErrorShape::Anthropic } else { ErrorShape::OpenAi },
            content_type: own(headers.get(names::CONTENT_TYPE)),
            content_encoding: headers.joined(names::CONTENT_ENCODING),
            content_length: headers.get(names::CONTENT_LENGTH).and_then(|length| length.trim().parse().ok()),
            tenant: trusted.text(names::TENANT, &config.tenant_header),
            tags: trusted.list(names::TAGS, &config.tags_header),
            pool: trusted.text(names::POOL, &config.pool_header),
            subset: metadata::list(metadata, names::SUBSET_NAMESPACE, names::SUBSET),
            traceparent: headers.get(names::TRACEPARENT).map(|value| value.as_ref().into()),
            began: Instant::now(),
            forged: names::OWNED.into_iter().filter(|name| headers.has(name)).collect(),
        }
    }

    /// Whether the decision depends on the body: an inference call, or anything that says it is JSON (and may
    /// name a model). Everything else is decided at once, and its body flows by unbuffered.
    pub fn needs_body(&self) -> bool {
        let content_type = self.content_type.as_deref().filter(|value| !value.trim().is_empty());
        match self.kind {
            RequestKind::Inference(_) => content_type.is_none_or(is_json),
            RequestKind::Other => content_type.is_some_and(is_json),
            RequestKind::StoredResponse(_) | RequestKind::Models(_) => false,
        }
    }

    /// The request as the pipeline takes it.
    pub fn incoming(&self, body: IncomingBody) -> Incoming {
        Incoming {
            request_id: self.request_id.clone(),
            kind: self.kind.clone(),
            content_type: self.content_type.clone(),
            content_encoding: self.content_encoding.clone(),
            tenant: self.tenant.clone(),
            tags: self.tags.clone(),
            pool: self.pool.clone(),
            subset: self.subset.clone(),
            exclude: Vec::new(),
            model: None,
            sees_response: true,
            began: self.began,
            traceparent: self.traceparent.clone(),
            body,
        }
    }
}

/// Where tenant, tags and pool may come from: metadata first, headers only where they are trusted.
struct Trusted<'a> {
    metadata: Option<&'a Metadata>,
    headers: Option<Headers<'a>>,
}

impl Trusted<'_> {
    fn text(&self, key: &str, header: &str) -> Option<Arc<str>> {
        if let Some(text) = metadata::text(self.metadata, names::OWN_NAMESPACE, key) {
            return Some(text.into());
        }
        let value = self.headers?.get(header)?;
        Some(value.trim()).filter(|value| !value.is_empty()).map(Arc::from)
    }

    fn list(&self, key: &str, header: &str) -> Vec<Arc<str>> {
        if let Some(list) = metadata::list(self.metadata, names::OWN_NAMESPACE, key) {
            return list.into_iter().map(Arc::from).collect();
        }
        let joined = self.headers.and_then(|headers| headers.joined(header)).unwrap_or_default();
        metadata::split(&joined).map(Arc::from).collect()
    }
}

#[cfg(test)]
mod tests;
