//! From the documented defaults, calibration comes to predict every simulated card: the real load table, prediction
//! and pick over simulated engines, under a virtual clock.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../src/bin/vllm-sim/engine/mod.rs"]
#[expect(dead_code, reason = "adapters and resets are for the stand-in")]
mod engine;
mod fleet;
mod traffic;

use clap::ValueEnum;
use engine::timing::Preset;
use fleet::{Fleet, Routed, Seen};
use traffic::Kind;

/// Requests before calibration is to be right, and as many after.
const LEARNING: usize = 500;
/// Share of the time that engines compute prompts, about.
const BUSY: f64 = 0.35;
const SEED: u64 = 3;

/// Requests to three engines with that card; what was seen of the later half.
async fn served(preset: Preset, kind: Kind, routed: Routed) -> Vec<Seen> {
    let timing = preset.profile().timing;
    // A cold prompt of the mean length; about so much of the mixed ones is not cached.
    let (tokens, uncached) = (2304, if kind == Kind::Control { 1.0 } else { 0.6 });
    let work = timing.prefill(tokens, tokens / 2) / 1e3 * uncached;
    let gap = work / (fleet::ENGINES as f64) / BUSY;
    let mut fleet = Fleet::new(preset, routed);
    fleet.serve(traffic::requests(kind, (2 * LEARNING, gap), SEED)).await;
    assert_eq!(fleet.seen.len(), 2 * LEARNING);
    fleet.seen.split_off(LEARNING)
}

/// Mean absolute error as a share of what was observed.
fn mape(seen: &[Seen], predicted: impl Fn(&Seen) -> f64) -> f64 {
    seen.iter().map(|one| (predicted(one) - one.observed_ms).abs() / one.observed_ms).sum::<f64>()
        / seen.len() as f64
}

/// All presets, with the error that is allowed.
async fn holds(kind: Kind, routed: Routed, most: f64) {
    let mut wrong = Vec::new();
    for preset in Preset::value_variants() {
        let seen = served(*preset, kind, routed).await;
        let (before, after) = (mape(&seen, |one| one.configured_ms), mape(&seen, |one| one.calibrated_ms));
        if after > most {
            wrong.push(format!("{preset:?}: {after:.3}, without calibration {before:.3}"));
        }
        assert!(before > 0.3, "{preset:?}: nothing to calibrate, {before:.3}");
    }
    assert!(wrong.is_empty(), "{kind:?} {routed:?}, at most {most}:\n{}", wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn prompts_that_share_prefixes_are_predicted() {
    holds(Kind::Mixed, Routed::Calibrated, 0.10).await;
}

#[tokio::test(start_paused = true)]
async fn prompts_that_share_nothing_are_predicted() {
    holds(Kind::Control, Routed::Calibrated, 0.15).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_only_shown_is_as_true() {
    holds(Kind::Control, Routed::Configured, 0.15).await;
}
