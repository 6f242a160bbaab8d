//! What a native caller is told when something is refused: canonical code, `google.rpc.ErrorInfo`, HTTP status.

use std::collections::HashMap;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

const DOMAIN: &str = "kinference.buoyant.io";

/// Why; `ErrorInfo.reason` is its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The call makes no sense.
    BadRequest,
    /// The API server did not answer in time.
    ReviewTimeout,
    /// The API server is not reached, or refuses us.
    ReviewUnavailable,
}

/// The status of a refusal. The message is for the caller.
pub fn refusal(reason: Reason, message: impl Into<String>) -> Status {
    let (code, name, http) = match reason {
        Reason::BadRequest => (Code::InvalidArgument, "BAD_REQUEST", "400"),
        Reason::ReviewTimeout => (Code::DeadlineExceeded, "REVIEW_TIMEOUT", "504"),
        Reason::ReviewUnavailable => (Code::Unavailable, "REVIEW_UNAVAILABLE", "503"),
    };
    let metadata = HashMap::from([("http_status".to_owned(), http.to_owned())]);
    let details = ErrorDetails::with_error_info(name, DOMAIN, metadata);
    Status::with_error_details(code, message, details)
}
