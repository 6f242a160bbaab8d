//! One `ErrorKind` decides the metric label, the HTTP and gRPC status and the client's JSON together.
//!
//! Messages are written for the client: nothing internal (addresses, file names, error chains) goes in.

use serde_json::{Value, json};

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
    /// A fault of ours.
    Internal,
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
    /// Every kind, for metrics and table tests.
    pub const ALL: [Self; 7] = [
        Self::BadRequest,
        Self::ModelNotFound,
        Self::BodyTimeout,
        Self::BodyTooLarge,
        Self::Overloaded,
        Self::NoWorker,
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
            Self::NoWorker => 503,
            Self::Internal => 500,
        }
    }

    /// Seconds for `Retry-After`, where trying again later makes sense.
    pub const fn retry_after_secs(self) -> Option<u32> {
        match self {
            Self::Overloaded | Self::NoWorker => Some(1),
            _ => None,
        }
    }

    const fn openai_type(self) -> &'static str {
        match self {
            Self::BadRequest | Self::BodyTooLarge | Self::BodyTimeout => "invalid_request_error",
            Self::ModelNotFound => "NotFoundError",
            Self::Overloaded => "rate_limit_error",
            Self::NoWorker => "service_unavailable_error",
            Self::Internal => "server_error",
        }
    }

    const fn anthropic_type(self) -> &'static str {
        match self {
            Self::BadRequest | Self::BodyTimeout => "invalid_request_error",
            Self::ModelNotFound => "not_found_error",
            Self::BodyTooLarge => "request_too_large",
            Self::Overloaded => "rate_limit_error",
            Self::NoWorker => "overloaded_error",
            Self::Internal => "api_error",
        }
    }
}

/// A request turned away, with the text that the client reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// What it is.
    pub kind: ErrorKind,
    /// For the client.
    pub message: String,
}

impl Rejection {
    /// A rejection of that kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
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
}
