//! Hand-computed cases for each term, and the formula's bounds for any input.

use proptest::prelude::*;

use super::*;
use crate::load::{Ahead, Freshness};

fn idle() -> LoadView {
    LoadView {
        freshness: Freshness::Fresh,
        age_ms: Some(0.0),
        queue: 0.0,
        own_untracked: 0,
        own_without_token: 0,
        own_in_flight: 0,
        backlog_ms: 0.0,
        running: 0.0,
        kv_usage: 0.0,
        ahead: Ahead::default(),
    }
}

fn of(predictor: &PredictorConfig, blocks: usize, overlap: Overlap, load: &LoadView) -> Prediction {
    predict(Cost { predictor, inflight_tracking: true, blocks, overlap, load })
}

fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-9, "{a} is not {b}");
}

#[test]
fn an_idle_cold_worker_costs_base_and_prefill() {
    let p = PredictorConfig::default();
    let got = of(&p, 100, Overlap::default(), &idle());
    near(got.prefill_ms, 2.3 * 100.0 + 0.009 * 100.0 * 100.0);
    near(got.ttft_ms, 400.0 + 230.0 + 90.0);
}

#[test]
fn cached_blocks_are_taken_off_and_the_rest_attends_to_all() {
    let p = PredictorConfig::default();
    let overlap = Overlap { confirmed: 60, any_tier: 60, expected: 60 };
    let got = of(&p, 100, overlap, &idle());
    near(got.prefill_ms, 2.3 * 40.0 + 0.009 * 40.0 * 100.0);
    near(got.cached_blocks, 60.0);
}

#[test]
fn alpha_and_lower_tiers_give_part_credit() {
    let p = PredictorConfig { expected_overlap_alpha: 0.5, ..Default::default() };
    let overlap = Overlap { confirmed: 10, any_tier: 20, expected: 30 };
    // held = 10 + 0.5 * 10 = 15; O = 15 + 0.5 * (30 - 15)
    near(of(&p, 100, overlap, &idle()).cached_blocks, 22.5);
    let untracked =
        predict(Cost { predictor: &p, inflight_tracking: false, blocks: 100, overlap, load: &idle() });
    near(untracked.cached_blocks, 15.0);
    // never more than the prompt has
    near(of(&p, 5, overlap, &idle()).cached_blocks, 5.0);
}

#[test]
fn the_queue_counts_own_unknown_work_beyond_the_capacity() {
    let p = PredictorConfig::default();
    let load = LoadView { queue: 2.0, own_untracked: 7, own_without_token: 9, ..idle() };
    let got = of(&p, 0, Overlap::default(), &load);
    near(got.queue, 4.0);
    near(got.queue_ms, 4000.0);
    let documented = PredictorConfig { backlog_weight: 0.0, ..p };
    let got = of(&documented, 0, Overlap::default(), &LoadView { backlog_ms: 500.0, ..load });
    near(got.queue, 6.0);
    near(got.backlog_ms, 0.0);
}

#[test]
fn the_backlog_is_weighted() {
    let p = PredictorConfig { backlog_weight: 0.5, ..Default::default() };
    near(of(&p, 0, Overlap::default(), &LoadView { backlog_ms: 500.0, ..idle() }).backlog_ms, 250.0);
}

#[test]
fn the_running_penalty_rises_to_its_peak_and_falls_off() {
    let p = PredictorConfig { forward_pass_ms: 7.0, ..Default::default() };
    for (running, want) in
        [(0.0, 0.0), (1.0, 350.0), (2.0, 700.0), (3.0, 700.0 * 2.0 / 3.0), (5.0, 0.0), (9.0, 0.0)]
    {
        let got = of(&p, 0, Overlap::default(), &LoadView { running, ..idle() });
        near(got.running_ms, want);
        near(got.forward_pass_ms, if running > 0.0 { 7.0 } else { 0.0 });
    }
}

#[test]
fn a_saturated_cache_costs_more_and_most_when_cold() {
    let p = PredictorConfig { cache_pressure_penalty_ms: 100.0, ..Default::default() };
    let load = LoadView { kv_usage: 0.95, queue: 2.0, ..idle() };
    let cold = of(&p, 10, Overlap::default(), &load);
    near(cold.cache_pressure_ms, 50.0);
    near(cold.saturated_cold_ms, 20_000.0);
    let warm = of(&p, 10, Overlap { confirmed: 1, any_tier: 1, expected: 1 }, &load);
    near(warm.saturated_cold_ms, 0.0);
    let below = of(&p, 10, Overlap::default(), &LoadView { kv_usage: 0.9, ..load });
    near(below.cache_pressure_ms + below.saturated_cold_ms, 0.0);
}

#[test]
fn degenerate_coefficients_stay_finite() {
    let p = PredictorConfig {
        cache_pressure_saturated_threshold: 1.0,
        q_running_penalty_peak_qr: 0,
        q_running_penalty_falloff_qr: 0,
        ..Default::default()
    };
    for running in [0.0, 1.0, 1e18] {
        let got = of(&p, 3, Overlap::default(), &LoadView { running, kv_usage: 7.0, ..idle() });
        assert!(got.ttft_ms.is_finite());
        near(got.running_ms, 0.0);
    }
}

proptest! {
    #[test]
    fn never_nan_never_negative_and_the_sum_of_its_terms(
        numbers in prop::array::uniform12(prop::num::f64::ANY),
        blocks in 0usize..100_000,
        overlap in (any::<u32>(), any::<u32>(), any::<u32>()),
        own in (any::<u32>(), any::<u32>()),
    ) {
        let [base, fp, q, a, aa, cp, t, sc, peak, usage, running, backlog] = numbers;
        let p = PredictorConfig {
            base_ms: base, forward_pass_ms: fp, queue_ms_per_entry: q, attention_uncached_block_ms: a,
            attention_uncached_per_every_block_ms: aa, cache_pressure_penalty_ms: cp,
            cache_pressure_saturated_threshold: t, saturated_cold_ms_per_entry: sc,
            q_running_penalty_peak_ms: peak, ..Default::default()
        };
        let load = LoadView {
            kv_usage: usage, running, backlog_ms: backlog, queue: q, own_untracked: own.0,
            own_without_token: own.1, ..idle()
        };
        let overlap = Overlap { confirmed: overlap.0, any_tier: overlap.1, expected: overlap.2 };
        let got = of(&p, blocks, overlap, &load);
        let terms = [got.base_ms, got.forward_pass_ms, got.backlog_ms, got.queue_ms, got.prefill_ms,
            got.running_ms, got.cache_pressure_ms, got.saturated_cold_ms];
        prop_assert!(terms.iter().all(|t| t.is_finite() && *t >= 0.0), "{got:?}");
        prop_assert!((got.ttft_ms - terms.iter().sum::<f64>()).abs() <= 1e-3 * got.ttft_ms.max(1.0));
        prop_assert!(got.cached_blocks >= 0.0 && got.cached_blocks <= blocks as f64);
    }
}
