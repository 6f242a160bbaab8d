//! `[[profile]]`: how prompts are tokenized, latency predicted, and endpoints picked for a worker set.

use super::{
    keys::Keys,
    kind::{Bool, COEFFICIENT, Choice, FRACTION, PERCENT, count, text, whole},
};

/// How prompts become tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TokenizeMode {
    /// Ask the engine (`http` is an alias).
    #[default]
    Render,
    /// In-process tokenizer.
    Local,
    /// In-process, checked against the engine off the request path.
    Compare,
}

const TOKENIZE_MODES: Choice<TokenizeMode> = Choice(&[
    ("render", TokenizeMode::Render),
    ("local", TokenizeMode::Local),
    ("compare", TokenizeMode::Compare),
    ("http", TokenizeMode::Render),
]);

/// Whether coefficients are fitted to the times to first token that are observed, and what with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Calibration {
    /// Nothing is learnt.
    Off,
    /// Learnt and shown; predictions are made with the configured coefficients.
    #[default]
    Shadow,
    /// Predictions are made with what is learnt.
    On,
}

const CALIBRATIONS: Choice<Calibration> =
    Choice(&[("off", Calibration::Off), ("shadow", Calibration::Shadow), ("on", Calibration::On)]);

/// A named way of tokenizing, predicting and picking, shared by worker sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Unique, not empty.
    pub name: String,
    /// `tokenize.mode`
    pub tokenize_mode: TokenizeMode,
    /// `[profile.predictor]`
    pub predictor: PredictorConfig,
    /// `[profile.picker]`
    pub picker: PickerConfig,
}

impl Profile {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.required("name", text(), &mut self.name);
        keys.section("tokenize", |keys| {
            keys.key("mode", TOKENIZE_MODES, &mut self.tokenize_mode);
        });
        keys.section("predictor", |keys| self.predictor.keys(keys));
        keys.section("picker", |keys| self.picker.keys(keys));
    }
}

/// Coefficients of the TTFT prediction; milliseconds unless named otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct PredictorConfig {
    /// Constant part.
    pub base_ms: f64,
    /// Added when the worker runs anything.
    pub forward_pass_ms: f64,
    /// For each request waiting ahead.
    pub queue_ms_per_entry: f64,
    /// For each uncached block.
    pub attention_uncached_block_ms: f64,
    /// For each uncached block times each block of the prompt.
    pub attention_uncached_per_every_block_ms: f64,
    /// At full KV cache; 0 at the threshold.
    pub cache_pressure_penalty_ms: f64,
    /// KV-cache use (0..1) from which it counts as saturated.
    pub cache_pressure_saturated_threshold: f64,
    /// For each waiting request, when saturated and the prompt is cold there.
    pub saturated_cold_ms_per_entry: f64,
    /// Penalty at `q_running_penalty_peak_qr` running requests.
    pub q_running_penalty_peak_ms: f64,
    /// Running requests at which the penalty peaks.
    pub q_running_penalty_peak_qr: u32,
    /// Running requests from which it is 0 again.
    pub q_running_penalty_falloff_qr: u32,
    /// Own requests without a token and without known work that do not count as queued.
    pub inflight_concurrent_capacity: u32,
    /// Share of the expected (in-flight) overlap that is credited.
    pub expected_overlap_alpha: f64,
    /// Own addition: weight of the drained backlog of own prefill work. 0 = the documented formula alone.
    pub backlog_weight: f64,
    /// Own addition: credit of a block that is only on a lower storage tier.
    pub lower_tier_credit: f64,
    /// Own addition: fit the coefficients to what is observed.
    pub calibration: Calibration,
}

impl Default for PredictorConfig {
    fn default() -> Self {
        Self {
            base_ms: 400.0,
            forward_pass_ms: 0.0,
            queue_ms_per_entry: 1000.0,
            attention_uncached_block_ms: 2.3,
            attention_uncached_per_every_block_ms: 0.009,
            cache_pressure_penalty_ms: 0.0,
            cache_pressure_saturated_threshold: 0.9,
            saturated_cold_ms_per_entry: 10_000.0,
            q_running_penalty_peak_ms: 700.0,
            q_running_penalty_peak_qr: 2,
            q_running_penalty_falloff_qr: 5,
            inflight_concurrent_capacity: 5,
            expected_overlap_alpha: 1.0,
            backlog_weight: 1.0,
            lower_tier_credit: 0.5,
            calibration: Calibration::default(),
        }
    }
}

impl PredictorConfig {
    fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("base_ms", COEFFICIENT, &mut self.base_ms);
        keys.key("forward_pass_ms", COEFFICIENT, &mut self.forward_pass_ms);
        keys.key("queue_ms_per_entry", COEFFICIENT, &mut self.queue_ms_per_entry);
        keys.key("attention_uncached_block_ms", COEFFICIENT, &mut self.attention_uncached_block_ms);
        let per_every_block = &mut self.attention_uncached_per_every_block_ms;
        keys.key("attention_uncached_per_every_block_ms", COEFFICIENT, per_every_block);
        keys.key("cache_pressure_penalty_ms", COEFFICIENT, &mut self.cache_pressure_penalty_ms);
        let saturated = &mut self.cache_pressure_saturated_threshold;
        keys.key("cache_pressure_saturated_threshold", FRACTION, saturated);
        keys.key("saturated_cold_ms_per_entry", COEFFICIENT, &mut self.saturated_cold_ms_per_entry);
        keys.key("q_running_penalty_peak_ms", COEFFICIENT, &mut self.q_running_penalty_peak_ms);
        keys.key("q_running_penalty_peak_qr", count(1), &mut self.q_running_penalty_peak_qr);
        keys.key("q_running_penalty_falloff_qr", count(1), &mut self.q_running_penalty_falloff_qr);
        keys.key("inflight_concurrent_capacity", count(0), &mut self.inflight_concurrent_capacity);
        keys.key("expected_overlap_alpha", FRACTION, &mut self.expected_overlap_alpha);
        keys.key("backlog_weight", COEFFICIENT, &mut self.backlog_weight);
        keys.key("lower_tier_credit", FRACTION, &mut self.lower_tier_credit);
        keys.key("calibration", CALIBRATIONS, &mut self.calibration);
    }
}

/// How one worker is chosen among predictions.
#[derive(Clone, Debug, PartialEq)]
pub struct PickerConfig {
    /// Minimum candidate set size.
    pub top_k_min: u32,
    /// Candidate set as a fraction of eligible workers.
    pub top_k_fraction: f64,
    /// Predictions within this are tied.
    pub tie_tolerance_ms: f64,
    /// Credit prefixes that in-flight requests are still prefilling.
    pub inflight_tracking: bool,
    /// Share of prompts (percent) above which a prefix is replicated; 0 disables.
    pub replication_threshold_pct: f64,
    /// Workers a replicated prefix should be warm on.
    pub replication_warm_target: u32,
    /// Overlap fraction counting as warm.
    pub replication_warm_threshold_fraction: f64,
    /// Own addition: own requests in flight at most on a worker that has answered none yet, while others have. 0 = no bound.
    pub warmup_in_flight_max: u32,
    /// Own addition: seed of the tie breaker. Unset: from the operating system.
    pub seed: Option<u64>,
}

impl Default for PickerConfig {
    fn default() -> Self {
        Self {
            top_k_min: 2,
            top_k_fraction: 0.2,
            tie_tolerance_ms: 50.0,
            inflight_tracking: true,
            replication_threshold_pct: 0.0,
            replication_warm_target: 2,
            replication_warm_threshold_fraction: 0.5,
            warmup_in_flight_max: 4,
            seed: None,
        }
    }
}

impl PickerConfig {
    fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("top_k_min", count(1), &mut self.top_k_min);
        keys.key("top_k_fraction", FRACTION, &mut self.top_k_fraction);
        keys.key("tie_tolerance_ms", COEFFICIENT, &mut self.tie_tolerance_ms);
        keys.key("inflight_tracking", Bool, &mut self.inflight_tracking);
        keys.key("replication_threshold_pct", PERCENT, &mut self.replication_threshold_pct);
        keys.key("replication_warm_target", count(0), &mut self.replication_warm_target);
        let warm = &mut self.replication_warm_threshold_fraction;
        keys.key("replication_warm_threshold_fraction", FRACTION, warm);
        keys.key("warmup_in_flight_max", count(0), &mut self.warmup_in_flight_max);
        keys.optional("seed", whole(0, i64::MAX), &mut self.seed);
    }
}
