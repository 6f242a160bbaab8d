//! What is written down of a request. Times are the engines', in ms.

use std::time::Duration;

use serde::Serialize;

use crate::client::{Answer, Failure};

/// One request.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    session: usize,
    turn: usize,
    /// When it was sent, in seconds of engine time since the start of the run.
    pub at_s: f64,
    /// Why it failed, by kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Until the first event with a token.
    ttft_ms: f64,
    total_ms: f64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
}

impl Record {
    /// Of the `turn`th request of a session, sent at `at` (wall time).
    pub fn new(
        (session, turn): (usize, usize),
        at: Duration,
        answer: &Result<Answer, Failure>,
        speedup: f64,
    ) -> Self {
        let ms = |time: fn(&Answer) -> Duration| {
            answer.as_ref().map_or(0.0, |answer| time(answer).as_secs_f64() * 1000.0 * speedup)
        };
        let usage = answer.as_ref().map(|answer| answer.usage.clone()).unwrap_or_default();
        Self {
            session,
            turn,
            at_s: at.as_secs_f64() * speedup,
            error: answer.as_ref().err().map(ToString::to_string),
            ttft_ms: ms(|answer| answer.first_token),
            total_ms: ms(|answer| answer.total),
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.cached_tokens(),
            completion_tokens: usage.completion_tokens,
        }
    }
}
