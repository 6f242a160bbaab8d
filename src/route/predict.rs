//! The TTFT prediction of one candidate: the documented formula with the drained backlog as our own term.
//!
//! Every term is finite and not negative, whatever coefficients and loads say; f64 milliseconds.

use crate::{
    config::PredictorConfig,
    load::{LoadView, Prefill},
    types::{Overlap, Prediction},
};

/// What a prediction follows from, for one candidate.
#[derive(Clone, Copy, Debug)]
pub struct Cost<'a> {
    /// The profile's coefficients.
    pub predictor: &'a PredictorConfig,
    /// Credit prefixes that in-flight requests are still prefilling.
    pub inflight_tracking: bool,
    /// B: blocks that the prompt takes up; 0 when it is not known (load only).
    pub blocks: usize,
    /// Cached leading blocks.
    pub overlap: Overlap,
    /// Load of the candidate.
    pub load: &'a LoadView,
}

/// Prefill work: of each uncached block, and of its attention over all blocks of its prompt.
pub fn prefill_work_ms(predictor: &PredictorConfig, prefill: Prefill) -> f64 {
    term(
        predictor.attention_uncached_block_ms * prefill.uncached
            + predictor.attention_uncached_per_every_block_ms * prefill.products,
    )
}

/// Predicts the time to first token.
pub fn predict(cost: Cost<'_>) -> Prediction {
    let p = cost.predictor;
    let load = cost.load;
    let blocks = cost.blocks as f64;
    let cached = credited(&cost).clamp(0.0, blocks);
    let queue = queue(p, load);
    let usage = load.kv_usage.clamp(0.0, 1.0);
    let threshold = p.cache_pressure_saturated_threshold;
    let saturated = usage > threshold;
    let when = |on: bool, ms: f64| if on { term(ms) } else { 0.0 };
    let mut out = Prediction {
        ttft_ms: 0.0,
        calibrated: false,
        base_ms: term(p.base_ms),
        forward_pass_ms: when(load.running > 0.0, p.forward_pass_ms),
        backlog_ms: term(p.backlog_weight * load.backlog_ms),
        queue_ms: term(p.queue_ms_per_entry * queue),
        prefill_ms: prefill_work_ms(p, Prefill::of(blocks - cached, blocks)),
        running_ms: term(p.q_running_penalty_peak_ms * running_share(p, load.running)),
        cache_pressure_ms: when(
            saturated,
            p.cache_pressure_penalty_ms * (usage - threshold) / (1.0 - threshold),
        ),
        saturated_cold_ms: when(saturated && cached == 0.0, p.saturated_cold_ms_per_entry * queue),
        // Follows from the other candidates: see `assume_worst`.
        assumed_ms: 0.0,
        provider_ms: 0.0,
        blocks,
        cached_blocks: cached,
        queue,
        running: load.running,
        kv_usage: usage,
    };
    out.ttft_ms = out.base_ms
        + out.forward_pass_ms
        + out.backlog_ms
        + out.queue_ms
        + out.prefill_ms
        + out.running_ms
        + out.cache_pressure_ms
        + out.saturated_cold_ms;
    out
}

/// The prediction of a provider, of whose load nothing is known: as soon as it answers others.
pub fn predict_provider(ttft_ms: f64) -> Prediction {
    let provider_ms = term(ttft_ms);
    Prediction { ttft_ms: provider_ms, provider_ms, ..Prediction::default() }
}

/// O: confirmed blocks, lower tiers at their credit, in-flight prefixes at `expected_overlap_alpha`.
fn credited(cost: &Cost<'_>) -> f64 {
    let p = cost.predictor;
    let confirmed = f64::from(cost.overlap.confirmed);
    let lower = f64::from(cost.overlap.any_tier.saturating_sub(cost.overlap.confirmed));
    let held = confirmed + p.lower_tier_credit * lower;
    let expected = if cost.inflight_tracking { f64::from(cost.overlap.expected).max(held) } else { held };
    held + p.expected_overlap_alpha * (expected - held)
}

/// Q: what waits ahead. Own requests in the backlog are not counted a second time.
fn queue(p: &PredictorConfig, load: &LoadView) -> f64 {
    let own = if p.backlog_weight > 0.0 { load.own_untracked } else { load.own_without_token };
    load.queue.max(0.0) + f64::from(own.saturating_sub(p.inflight_concurrent_capacity))
}

/// Height of the penalty for running requests: 0 at none, linear to 1 at the peak, linear back to 0 at the falloff.
pub(super) fn running_share(p: &PredictorConfig, running: f64) -> f64 {
    let (peak, falloff) = (f64::from(p.q_running_penalty_peak_qr), f64::from(p.q_running_penalty_falloff_qr));
    if running <= 0.0 || running >= falloff.max(peak) && running > peak {
        0.0
    } else if running <= peak {
        running / peak
    } else {
        (falloff - running) / (falloff - peak)
    }
}

/// Far above any real latency, far below where f64 loses whole milliseconds.
const MOST_MS: f64 = 1e12;

fn term(ms: f64) -> f64 {
    if ms.is_nan() { MOST_MS } else { ms.clamp(0.0, MOST_MS) }
}

#[cfg(test)]
mod tests;
