//! Errors of the native API: one place decides gRPC code, reason, HTTP status and when to try again.
//!
//! Every status carries a `google.rpc.ErrorInfo` (domain, reason, metadata `http_status`), and a `RetryInfo` where trying
//! again soon makes sense. Messages are written for the caller: nothing internal goes in.

use std::{collections::HashMap, time::Duration};

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::types::{ErrorKind, Rejection};

/// `ErrorInfo.domain` of every error.
pub const DOMAIN: &str = "kinference.buoyant.io";
/// `ErrorInfo.metadata` key: what an HTTP client should be told.
pub const HTTP_STATUS: &str = "http_status";

/// `ErrorInfo.reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The request is not what its contract says.
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
    /// The caller went away in the middle of a call.
    Cancelled,
    /// No body of that id: unknown, used, or older than `body_ttl_secs`.
    BodyNotFound,
    /// No pick of that id: unknown, or forgotten.
    PickNotFound,
    /// The id is another replica's.
    WrongReplica,
    /// The API server did not answer in time.
    ReviewTimeout,
    /// The API server is not reached, or refuses us.
    ReviewUnavailable,
}

impl Reason {
    /// Every reason, for metrics and table tests.
    pub const ALL: [Self; 13] = [
        Self::BadRequest,
        Self::ModelNotFound,
        Self::BodyTimeout,
        Self::BodyTooLarge,
        Self::Overloaded,
        Self::NoWorker,
        Self::Internal,
        Self::Cancelled,
        Self::BodyNotFound,
        Self::PickNotFound,
        Self::WrongReplica,
        Self::ReviewTimeout,
        Self::ReviewUnavailable,
    ];

    /// As it stands in `ErrorInfo.reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "BAD_REQUEST",
            Self::ModelNotFound => "MODEL_NOT_FOUND",
            Self::BodyTimeout => "BODY_TIMEOUT",
            Self::BodyTooLarge => "BODY_TOO_LARGE",
            Self::Overloaded => "OVERLOADED",
            Self::NoWorker => "NO_WORKER",
            Self::Internal => "INTERNAL",
            Self::Cancelled => "CANCELLED",
            Self::BodyNotFound => "BODY_NOT_FOUND",
            Self::PickNotFound => "PICK_NOT_FOUND",
            Self::WrongReplica => "WRONG_REPLICA",
            Self::ReviewTimeout => "REVIEW_TIMEOUT",
            Self::ReviewUnavailable => "REVIEW_UNAVAILABLE",
        }
    }

    /// The gRPC code.
    pub const fn code(self) -> Code {
        match self {
            Self::BadRequest => Code::InvalidArgument,
            Self::ModelNotFound | Self::BodyNotFound | Self::PickNotFound => Code::NotFound,
            Self::BodyTimeout | Self::ReviewTimeout => Code::DeadlineExceeded,
            Self::BodyTooLarge | Self::Overloaded => Code::ResourceExhausted,
            Self::NoWorker | Self::ReviewUnavailable => Code::Unavailable,
            Self::Internal => Code::Internal,
            Self::Cancelled => Code::Cancelled,
            Self::WrongReplica => Code::FailedPrecondition,
        }
    }

    /// What an HTTP client should be told.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Cancelled => 499,
            Self::PickNotFound => 404,
            // The client did nothing wrong, and may well be luckier the next time.
            Self::BodyNotFound | Self::WrongReplica | Self::ReviewUnavailable => 503,
            Self::ReviewTimeout => 504,
            _ => match self.kind() {
                Some(kind) => kind.http_status(),
                None => ErrorKind::Internal.http_status(),
            },
        }
    }

    /// The kind of rejection that it tells of, if it is one.
    const fn kind(self) -> Option<ErrorKind> {
        Some(match self {
            Self::BadRequest => ErrorKind::BadRequest,
            Self::ModelNotFound => ErrorKind::ModelNotFound,
            Self::BodyTimeout => ErrorKind::BodyTimeout,
            Self::BodyTooLarge => ErrorKind::BodyTooLarge,
            Self::Overloaded => ErrorKind::Overloaded,
            Self::NoWorker => ErrorKind::NoWorker,
            Self::Internal => ErrorKind::Internal,
            _ => return None,
        })
    }

    fn retry_after(self) -> Option<Duration> {
        let secs = self.kind()?.retry_after_secs()?;
        Some(Duration::from_secs(secs.into()))
    }
}

impl From<ErrorKind> for Reason {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadRequest => Self::BadRequest,
            ErrorKind::ModelNotFound => Self::ModelNotFound,
            ErrorKind::BodyTimeout => Self::BodyTimeout,
            ErrorKind::BodyTooLarge => Self::BodyTooLarge,
            ErrorKind::Overloaded => Self::Overloaded,
            ErrorKind::NoWorker => Self::NoWorker,
            ErrorKind::Internal => Self::Internal,
        }
    }
}

/// A call turned away, before it becomes a status.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// For the caller.
    pub message: String,
}

impl Refusal {
    /// A refusal for that reason.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl From<Rejection> for Refusal {
    fn from(Rejection { kind, message }: Rejection) -> Self {
        Self { reason: kind.into(), message }
    }
}

impl From<Refusal> for Status {
    fn from(Refusal { reason, message }: Refusal) -> Self {
        refusal(reason, message)
    }
}

/// The status that tells of a rejection.
pub fn status(rejection: &Rejection) -> Status {
    refusal(rejection.kind.into(), rejection.message.as_str())
}

/// The status for that reason.
pub fn refusal(reason: Reason, message: impl Into<String>) -> Status {
    let metadata = HashMap::from([(HTTP_STATUS.to_owned(), reason.http_status().to_string())]);
    let mut details = ErrorDetails::with_error_info(reason.name(), DOMAIN, metadata);
    if let Some(after) = reason.retry_after() {
        details.set_retry_info(Some(after));
    }
    Status::with_error_details(reason.code(), message, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_told_in_full() {
        let mut names = std::collections::BTreeSet::new();
        for reason in Reason::ALL {
            let status = refusal(reason, "why");
            let details = status.get_error_details();
            let info = details.error_info().unwrap();
            assert_eq!((info.domain.as_str(), info.reason.as_str()), (DOMAIN, reason.name()));
            assert_eq!(info.metadata[HTTP_STATUS], reason.http_status().to_string());
            assert_eq!((status.code(), status.message()), (reason.code(), "why"));
            assert_eq!(details.retry_info().is_some(), reason.retry_after().is_some());
            assert!(reason.http_status() >= 400 && names.insert(reason.name()));
        }
    }

    #[test]
    fn rejections_keep_their_http_status() {
        for kind in ErrorKind::ALL {
            let reason = Reason::from(kind);
            assert_eq!((reason.http_status(), reason.kind()), (kind.http_status(), Some(kind)));
            assert_eq!(status(&Rejection::new(kind, "why")).code(), reason.code());
        }
        assert!(refusal(Reason::Overloaded, "").get_details_retry_info().is_some());
    }
}
