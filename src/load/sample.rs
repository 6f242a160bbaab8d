//! What a scrape says of a worker's load, and what a pick sees of it.
//!
//! Invariant: every number here is finite and not negative, whatever an engine published.

use super::Ahead;
use crate::types::Degradation;

/// More requests than any engine holds: what an engine claims beyond it is cut off.
const MAX_REQUESTS: f64 = 1e6;

/// Load as one scrape of an engine gave it, summed over its data-parallel ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LoadSample {
    /// Requests being executed.
    pub running: f64,
    /// Requests waiting for execution.
    pub waiting: f64,
    /// KV-cache use, 0..=1.
    pub kv_usage: f64,
}

impl LoadSample {
    /// The sample with each number in its sane range; NaN counts as zero.
    pub(super) fn clamped(self) -> Self {
        // `max` takes the other operand of a NaN.
        let within = |value: f64, most: f64| value.max(0.0).min(most);
        Self {
            running: within(self.running, MAX_REQUESTS),
            waiting: within(self.waiting, MAX_REQUESTS),
            kv_usage: within(self.kv_usage, 1.0),
        }
    }

    /// The larger one of each number.
    pub(super) fn worst(self, other: Self) -> Self {
        Self {
            running: self.running.max(other.running),
            waiting: self.waiting.max(other.waiting),
            kv_usage: self.kv_usage.max(other.kv_usage),
        }
    }
}

/// How far a worker's scraped load can be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// Never scraped: the scraped numbers are zero.
    #[default]
    Never,
    /// Scraped within the last two polls.
    Fresh,
    /// Scrapes are missing, and the last value still stands.
    Kept,
    /// Older than 5 polls: the worst known load of the fleet is assumed.
    Stale,
}

impl Freshness {
    /// What a prediction for the worker lacks because of it.
    pub fn lacks(self) -> Option<Degradation> {
        match self {
            Self::Fresh | Self::Kept => None,
            Self::Never => Some(Degradation::NoMetrics),
            Self::Stale => Some(Degradation::StaleMetrics),
        }
    }
}

/// The load of one worker at the moment of a pick.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct LoadView {
    /// How far the scraped numbers can be trusted.
    pub freshness: Freshness,
    /// Milliseconds since the last scrape; `None`: never scraped.
    pub age_ms: Option<f64>,
    /// The scraped part of Q: waiting requests that are not our own, as of the last scrape.
    pub queue: f64,
    /// Own requests without a token whose work is not in `backlog_ms`, because it is not known.
    pub own_untracked: u32,
    /// Own requests without a token (whole ones: whose predicted prefill is not over).
    pub own_without_token: u32,
    /// Own requests that have not ended.
    pub own_in_flight: u32,
    /// Prefill work left of own requests without a token, drained by the time since the head became head.
    pub backlog_ms: f64,
    /// The same requests, in the units that their work is computed from.
    pub ahead: Ahead,
    /// Requests running: scraped, without own that ended since that scrape, and own dispatched since (all own
    /// where there was none).
    pub running: f64,
    /// KV-cache use, 0..=1.
    pub kv_usage: f64,
}
