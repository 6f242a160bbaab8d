//! How soon a provider's model answers, learnt from the first tokens of streamed answers. Pure; milliseconds.
//!
//! An average that an observation moves by a tenth, and that begins at what is expected: one slow answer does not turn
//! traffic away. Unobserved it goes back to what is expected, or a provider that was slow once would never be asked again.

use std::time::Duration;

use tokio::time::Instant;

/// Share by which an observation moves the average.
const ALPHA: f64 = 0.1;
/// After that long without an observation, half of what was learnt is left.
const HALF_LIFE: Duration = Duration::from_secs(600);
/// No answer takes longer; as long as a provider may be expected to take.
const MOST_MS: f64 = 600_000.0;

/// What was learnt.
#[derive(Debug)]
pub(super) struct Learnt {
    average_ms: f64,
    observed: Instant,
}

impl Learnt {
    /// Nothing yet.
    pub(super) fn new(expected_ms: f64, now: Instant) -> Self {
        Self { average_ms: expected_ms, observed: now }
    }

    /// Milliseconds to the first token.
    pub(super) fn ms(&self, expected_ms: f64, now: Instant) -> f64 {
        let age = now.saturating_duration_since(self.observed).as_secs_f64();
        let left = 0.5_f64.powf(age / HALF_LIFE.as_secs_f64());
        expected_ms + (self.average_ms - expected_ms) * left
    }

    /// The first token came that long after the decision.
    pub(super) fn observe(&mut self, after: Duration, expected_ms: f64, now: Instant) {
        let before = self.ms(expected_ms, now);
        let observed = (after.as_secs_f64() * 1e3).min(MOST_MS);
        *self = Self { average_ms: before + ALPHA * (observed - before), observed: now };
    }
}
