//! The prediction of one candidate's time to first token, term by term. Milliseconds, never NaN or negative.

/// Each term of the formula under its own name; their sum is `ttft_ms`.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Prediction {
    /// The prediction: the sum of the terms below.
    pub ttft_ms: f64,
    /// Made with coefficients that were fitted to observations, not with the configured ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub calibrated: bool,
    /// `base_ms`.
    pub base_ms: f64,
    /// `forward_pass_ms`, when the worker runs anything.
    pub forward_pass_ms: f64,
    /// `backlog_weight` times the drained prefill work of our own requests that wait ahead.
    pub backlog_ms: f64,
    /// `queue_ms_per_entry` times the queue.
    pub queue_ms: f64,
    /// Prefill work of this prompt there.
    pub prefill_ms: f64,
    /// The penalty for running requests.
    pub running_ms: f64,
    /// The penalty for a nearly full KV cache.
    pub cache_pressure_ms: f64,
    /// The penalty for a cold prompt on a worker with a saturated cache.
    pub saturated_cold_ms: f64,
    /// What a worker whose load is only assumed would seem to be faster than the worst known one.
    pub assumed_ms: f64,
    /// All of a provider's time: learnt from its answers, or expected.
    pub provider_ms: f64,
    /// B: blocks of the prompt.
    pub blocks: f64,
    /// O: blocks credited as cached, within 0..=B.
    pub cached_blocks: f64,
    /// Q: requests waiting ahead.
    pub queue: f64,
    /// Requests running.
    pub running: f64,
    /// KV-cache use, 0..=1.
    pub kv_usage: f64,
}

impl Prediction {
    /// U: blocks of the prompt that are to be prefilled.
    pub fn uncached_blocks(&self) -> f64 {
        (self.blocks - self.cached_blocks).max(0.0)
    }
}
