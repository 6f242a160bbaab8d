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

/// Why a call gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The request is turned away, as an HTTP client would be.
    Rejected(ErrorKind),
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
    /// Every reason, for table tests.
    pub fn all() -> impl Iterator<Item = Self> {
        let own = [
            Self::Cancelled,
            Self::BodyNotFound,
            Self::PickNotFound,
            Self::WrongReplica,
            Self::ReviewTimeout,
            Self::ReviewUnavailable,
        ];
        ErrorKind::ALL.into_iter().map(Self::Rejected).chain(own)
    }

    /// As it stands in `ErrorInfo.reason`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rejected(kind) => rejected(kind).0,
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
            Self::Rejected(kind) => rejected(kind).1,
            Self::Cancelled => Code::Cancelled,
            Self::BodyNotFound | Self::PickNotFound => Code::NotFound,
            Self::WrongReplica => Code::FailedPrecondition,
            Self::ReviewTimeout => Code::DeadlineExceeded,
            Self::ReviewUnavailable => Code::Unavailable,
        }
    }

    /// What an HTTP client should be told.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Rejected(kind) => kind.http_status(),
            Self::Cancelled => 499,
            Self::PickNotFound => 404,
            // The client did nothing wrong, and may well be luckier the next time.
            Self::BodyNotFound | Self::WrongReplica | Self::ReviewUnavailable => 503,
            Self::ReviewTimeout => 504,
        }
    }

    fn retry_after(self) -> Option<Duration> {
        let Self::Rejected(kind) = self else { return None };
        Some(Duration::from_secs(kind.retry_after_secs()?.into()))
    }
}

impl From<ErrorKind> for Reason {
    fn from(kind: ErrorKind) -> Self {
        Self::Rejected(kind)
    }
}

/// What a rejection is in the words of gRPC.
const fn rejected(kind: ErrorKind) -> (&'static str, Code) {
    match kind {
        ErrorKind::BadRequest => ("BAD_REQUEST", Code::InvalidArgument),
        ErrorKind::ModelNotFound => ("MODEL_NOT_FOUND", Code::NotFound),
        ErrorKind::BodyTimeout => ("BODY_TIMEOUT", Code::DeadlineExceeded),
        ErrorKind::BodyTooLarge => ("BODY_TOO_LARGE", Code::ResourceExhausted),
        ErrorKind::Overloaded => ("OVERLOADED", Code::ResourceExhausted),
        ErrorKind::NoWorker => ("NO_WORKER", Code::Unavailable),
        ErrorKind::PoolNotFound => ("POOL_NOT_FOUND", Code::Unavailable),
        ErrorKind::Policy(_) => ("REJECTED_BY_POLICY", policy_code(kind.http_status())),
        ErrorKind::Internal => ("INTERNAL", Code::Internal),
    }
}

const fn policy_code(status: u16) -> Code {
    match status {
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::NotFound,
        429 => Code::ResourceExhausted,
        500.. => Code::Unavailable,
        _ => Code::FailedPrecondition,
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
    pub fn new(reason: impl Into<Reason>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

impl From<Rejection> for Refusal {
    fn from(Rejection { kind, message, .. }: Rejection) -> Self {
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
    refusal(rejection.kind, rejection.message.as_str())
}

/// The status for that reason.
pub fn refusal(reason: impl Into<Reason>, message: impl Into<String>) -> Status {
    let reason = reason.into();
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
        for reason in Reason::all() {
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
    fn rejections_keep_their_http_status_and_when_to_try_again() {
        for kind in ErrorKind::ALL {
            let status = status(&Rejection::new(kind, "why"));
            let details = status.get_error_details();
            assert_eq!(details.error_info().unwrap().metadata[HTTP_STATUS], kind.http_status().to_string());
            let after = details.retry_info().and_then(|info| info.retry_delay);
            assert_eq!(after, kind.retry_after_secs().map(|secs| Duration::from_secs(secs.into())));
        }
    }
}
