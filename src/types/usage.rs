//! How a request ended, and what it used.

/// Token counts that an engine reported for one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens generated.
    pub completion_tokens: u64,
    /// Prompt tokens served from the engine's prefix cache; `None` where the engine does not say.
    pub cached_tokens: Option<u64>,
}

/// How a request ended, as seen on the way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The response came to its end with a status below 400.
    Completed,
    /// 4xx from the engine: says nothing about the engine.
    ClientError,
    /// 5xx from the engine, a connection error, or a timeout.
    Failed,
    /// The client or the proxy went away first. So does an answer look that its engine broke off: ext_proc only sees the
    /// stream close.
    Cancelled,
    /// 401, 403 or 429: the client's business where a worker says so. A provider says it of us, whose credential and
    /// whose account it is. A redirection too: no inference API answers with one.
    Refused,
}

impl Outcome {
    /// Every one, for metrics.
    pub const ALL: [Self; 5] =
        [Self::Completed, Self::ClientError, Self::Failed, Self::Cancelled, Self::Refused];

    /// As placed requests are counted, whose refusals are failures or the client's errors; each at its own index.
    pub const ENDS: [Self; 4] = [Self::Completed, Self::ClientError, Self::Failed, Self::Cancelled];

    /// Of a response with that status that came to its end.
    pub const fn of_status(status: u16) -> Self {
        match status {
            0..300 => Self::Completed,
            300..400 | 401 | 403 | 429 => Self::Refused,
            400..500 => Self::ClientError,
            500.. => Self::Failed,
        }
    }

    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::ClientError => "client_error",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}
