//! Every header and metadata name that the ext_proc front door reads or writes.
//!
//! Invariant: a header listed in `OWNED` reaches the engine only as we set it, never as a client sent it.

/// Request header and `envoy.lb` metadata key of the pick: `ip:port[,ip:port...]`, best first.
pub const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Request header of what serves the pick, for routes: `workerset/<name>`, or `provider/<name>`.
pub const BACKEND: &str = "x-kinference-backend";
/// `envoy.lb` metadata key of the endpoint that served, on response messages.
pub const SERVED: &str = "x-gateway-destination-endpoint-served";
/// Metadata key of the endpoints that may be picked.
pub const SUBSET: &str = "x-gateway-destination-endpoint-subset";
/// Metadata namespace of the pick and of who served.
pub const LB_NAMESPACE: &str = "envoy.lb";
/// Metadata namespace of the subset hint.
pub const SUBSET_NAMESPACE: &str = "envoy.lb.subset_hint";
/// Metadata namespace in which a trusted filter tells tenant, tags and pool.
pub const OWN_NAMESPACE: &str = "kinference";
/// Key in [`OWN_NAMESPACE`].
pub const TENANT: &str = "tenant";
/// Key in [`OWN_NAMESPACE`].
pub const TAGS: &str = "tags";
/// Key in [`OWN_NAMESPACE`].
pub const POOL: &str = "pool";

/// The request's id.
pub const REQUEST_ID: &str = "x-request-id";
/// The span of the proxy that ours is a child of (W3C Trace Context).
pub const TRACEPARENT: &str = "traceparent";
/// Pseudo header.
pub const METHOD: &str = ":method";
/// Pseudo header.
pub const AUTHORITY: &str = ":authority";
/// Pseudo header.
pub const PATH: &str = ":path";
/// Pseudo header.
pub const STATUS: &str = ":status";
/// Standard header.
pub const CONTENT_TYPE: &str = "content-type";
/// Standard header.
pub const CONTENT_ENCODING: &str = "content-encoding";
/// Standard header.
pub const CONTENT_LENGTH: &str = "content-length";
/// Standard header.
pub const RETRY_AFTER: &str = "retry-after";

/// Header of clients of Anthropic's API.
pub const ANTHROPIC_VERSION: &str = "anthropic-version";

/// Explains the decision on the response: the id that it is remembered by.
pub const EXPLAIN_REQUEST: &str = "x-kinference-request-id";
/// Explains the decision on the response: the chosen worker's name, or `provider/<name>`.
pub const EXPLAIN_WORKER: &str = "x-kinference-worker";
/// Explains the decision on the response: milliseconds.
pub const EXPLAIN_TTFT: &str = "x-kinference-predicted-ttft-ms";
/// Explains the decision on the response: blocks credited as cached.
pub const EXPLAIN_CACHED: &str = "x-kinference-cached-blocks";
/// Explains the decision on the response: tokens.
pub const EXPLAIN_TOKENS: &str = "x-kinference-prompt-tokens";
/// Explains the decision on the response: comma-separated degradations.
pub const EXPLAIN_DEGRADED: &str = "x-kinference-degraded";
/// Explains the decision on the response: the model as the chosen worker knows it.
pub const EXPLAIN_MODEL: &str = "x-kinference-model";
/// Explains the decision on the response: the rule that decided, `policy/rule`.
pub const EXPLAIN_RULE: &str = "x-kinference-rule";

/// Headers that stay behind when a request leaves for a provider. What a client proves itself to us with and who it is are no
/// provider's business, and whose account pays is for our credential to say. An answer in an encoding could not be
/// read: neither what it used, nor the model's name in it.
pub const LEFT_BEHIND: [&str; 20] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "api-key",
    "cookie",
    "x-auth-token",
    "x-goog-api-key",
    "x-amz-security-token",
    "x-forwarded-access-token",
    "openai-organization",
    "openai-project",
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-user",
    "x-real-ip",
    "baggage",
    "tracestate",
    "origin",
    "referer",
    "accept-encoding",
];

/// Headers that are ours alone to set: inbound copies are removed from requests.
pub const OWNED: [&str; 10] = [
    DESTINATION,
    BACKEND,
    EXPLAIN_REQUEST,
    EXPLAIN_WORKER,
    EXPLAIN_TTFT,
    EXPLAIN_CACHED,
    EXPLAIN_TOKENS,
    EXPLAIN_DEGRADED,
    EXPLAIN_MODEL,
    EXPLAIN_RULE,
];
