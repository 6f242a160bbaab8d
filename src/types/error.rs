//! One `ErrorKind` decides the metric label, the HTTP and gRPC status and the client's JSON together.
//!
//! Messages are written for the client: nothing internal (addresses, file names, error chains) goes in.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Removed, Ruled};

/// Why a request was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The body is not what its path and content type say.
    BadRequest,
    /// No worker serves the model that was asked for.
    ModelNotFound,
    /// The body did not arrive in time.
    BodyTimeout,
    /// The body is larger than `body_max_request_kb`.
    BodyTooLarge,
    /// `body_max_total_kb` is used up.
    Overloaded,
    /// No eligible worker.
    NoWorker,
    /// The route belongs to an InferencePool that is not there, or not yet.
    PoolNotFound,
    /// A policy says no, with a status of its own.
    Policy(PolicyStatus),
    /// A fault of ours.
    Internal,
}

/// The HTTP status that a policy turns requests away with.
///
/// Invariant: 400 to 599.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PolicyStatus(u16);

impl PolicyStatus {
    /// That status, or the nearest one that is an error.
    pub const fn of(status: u16) -> Self {
        match status {
            0..400 => Self(400),
            400..600 => Self(status),
            600.. => Self(599),
        }
    }

    const fn openai_type(self) -> &'static str {
        match self.0 {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "NotFoundError",
            429 => "rate_limit_error",
            503 => "service_unavailable_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    const fn anthropic_type(self) -> &'static str {
        match self.0 {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            503 | 529 => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }
}

/// Whose error format the client expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorShape {
    /// `{"error": {message, type, param, code}}`
    #[default]
    OpenAi,
    /// `{"type": "error", "error": {type, message}}`
    Anthropic,
}

impl ErrorKind {
    /// Every kind, for metrics and table tests; of those with a status of their own, one.
    pub const ALL: [Self; 9] = [
        Self::BadRequest,
        Self::ModelNotFound,
        Self::BodyTimeout,
        Self::BodyTooLarge,
        Self::Overloaded,
        Self::NoWorker,
        Self::PoolNotFound,
        Self::Policy(PolicyStatus::of(503)),
        Self::Internal,
    ];

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::ModelNotFound => "model_not_found",
            Self::BodyTimeout => "body_timeout",
            Self::BodyTooLarge => "body_too_large",
            Self::Overloaded => "overloaded",
            Self::NoWorker => "no_worker",
            Self::PoolNotFound => "pool_not_found",
            Self::Policy(_) => "policy",
            Self::Internal => "internal",
        }
    }

    /// The HTTP status.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::ModelNotFound => 404,
            Self::BodyTimeout => 408,
            Self::BodyTooLarge => 413,
            Self::Overloaded => 429,
            Self::NoWorker | Self::PoolNotFound => 503,
            Self::Policy(status) => status.0,
            Self::Internal => 500,
        }
    }

    /// Seconds for `Retry-After`, where trying again later makes sense.
    pub const fn retry_after_secs(self) -> Option<u32> {
        match self {
            Self::Overloaded
            | Self::NoWorker
            | Self::PoolNotFound
            | Self::Policy(PolicyStatus(429 | 503)) => Some(1),
            _ => None,
        }
    }

    const fn openai_type(self) -> &'static str {
        match self {
            Self::BadRequest | Self::BodyTooLarge | Self::BodyTimeout => "invalid_request_error",
            Self::ModelNotFound => "NotFoundError",
            Self::Overloaded => "rate_limit_error",
            Self::NoWorker | Self::PoolNotFound => "service_unavailable_error",
            Self::Policy(status) => status.openai_type(),
            Self::Internal => "server_error",
        }
    }

    const fn anthropic_type(self) -> &'static str {
        match self {
            Self::BadRequest | Self::BodyTimeout => "invalid_request_error",
            Self::ModelNotFound => "not_found_error",
            Self::BodyTooLarge => "request_too_large",
            Self::Overloaded => "rate_limit_error",
            Self::NoWorker | Self::PoolNotFound => "overloaded_error",
            Self::Policy(status) => status.anthropic_type(),
            Self::Internal => "api_error",
        }
    }
}

/// A request turned away, with the text that the client reads.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// What it is.
    pub kind: ErrorKind,
    /// For the client.
    pub message: String,
    /// What the pool's rules made of it, as far as they were run.
    pub ruled: Option<Arc<Ruled>>,
    /// Those who might have served it, and why they did not.
    pub removed: Vec<Removed>,
}

impl Rejection {
    /// A rejection of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), ruled: None, removed: Vec::new() }
    }

    /// The same where those were removed before.
    #[must_use]
    pub fn after(mut self, mut removed: Vec<Removed>) -> Self {
        removed.append(&mut self.removed);
        Self { removed, ..self }
    }

    /// The JSON body of the answer.
    pub fn body(&self, shape: ErrorShape) -> Value {
        match shape {
            ErrorShape::OpenAi => json!({"error": {
                "message": self.message,
                "type": self.kind.openai_type(),
                "param": if self.kind == ErrorKind::ModelNotFound { json!("model") } else { Value::Null },
                "code": self.kind.http_status(),
            }}),
            ErrorShape::Anthropic => json!({
                "type": "error",
                "error": {"type": self.kind.anthropic_type(), "message": self.message},
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_unique_and_statuses_are_errors() {
        let mut labels: Vec<_> = ErrorKind::ALL.iter().map(|k| k.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), ErrorKind::ALL.len());
        assert!(ErrorKind::ALL.iter().all(|k| k.http_status() >= 400));
    }

    #[test]
    fn both_shapes_carry_the_message() {
        let r = Rejection::new(ErrorKind::ModelNotFound, "no such model");
        assert_eq!(r.body(ErrorShape::OpenAi)["error"]["message"], "no such model");
        assert_eq!(r.body(ErrorShape::OpenAi)["error"]["code"], 404);
        assert_eq!(r.body(ErrorShape::Anthropic)["error"]["type"], "not_found_error");
    }

    #[test]
    fn a_policy_has_a_status_of_its_own_that_is_an_error() {
        for (given, status, openai, anthropic, again) in [
            (0, 400, "invalid_request_error", "invalid_request_error", false),
            (403, 403, "permission_error", "permission_error", false),
            (429, 429, "rate_limit_error", "rate_limit_error", true),
            (451, 451, "invalid_request_error", "invalid_request_error", false),
            (503, 503, "service_unavailable_error", "overloaded_error", true),
            (700, 599, "server_error", "api_error", false),
        ] {
            let rejection = Rejection::new(ErrorKind::Policy(PolicyStatus::of(given)), "no");
            assert_eq!((rejection.kind.http_status(), rejection.kind.label()), (status, "policy"));
            assert_eq!(rejection.kind.retry_after_secs().is_some(), again, "{given}");
            let body = rejection.body(ErrorShape::OpenAi);
            assert_eq!((&body["error"]["type"], &body["error"]["code"]), (&json!(openai), &json!(status)));
            assert_eq!(rejection.body(ErrorShape::Anthropic)["error"]["type"], anthropic);
        }
    }
}
