//! Figures of runs. Milliseconds and shares; repeats are summed up as their median, least and most.

use std::time::Duration;

use serde::Serialize;

use crate::world::Served;

/// One run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Figures {
    pub ttft_p50_ms: f64,
    pub ttft_p95_ms: f64,
    pub ttft_mean_ms: f64,
    /// Share of prompt tokens found in the engines' caches.
    pub cached_share: f64,
    /// Requests a minute whose first token came within the objective.
    pub goodput_rpm: f64,
}

/// The value below which that share of a sorted list lies.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let at = (share * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Of one run, that took so long from its first arrival to its last first token.
pub fn figures(served: &[Served], (took, objective): (Duration, Duration)) -> Figures {
    let mut ttft: Vec<f64> = served.iter().map(|one| one.ttft.as_secs_f64() * 1e3).collect();
    ttft.sort_by(f64::total_cmp);
    let sum = |of: fn(&Served) -> usize| served.iter().map(of).sum::<usize>() as f64;
    let met = served.iter().filter(|one| one.ttft <= objective).count() as f64;
    Figures {
        ttft_p50_ms: quantile(&ttft, 0.5),
        ttft_p95_ms: quantile(&ttft, 0.95),
        ttft_mean_ms: ttft.iter().sum::<f64>() / ttft.len() as f64,
        cached_share: sum(|one| one.cached) / sum(|one| one.prompt),
        goodput_rpm: met / (took.as_secs_f64() / 60.0),
    }
}

/// A figure over the repeats.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

/// Sums repeats up.
pub fn spread(values: impl IntoIterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let at = |share| quantile(&values, share);
    Spread { median: at(0.5), least: at(0.0), most: at(1.0) }
}
