//! What is written down: one record per request, one summary per run. Times are the engine's, in ms.

use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::client::Answer;

/// One request.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    session: usize,
    turn: usize,
    /// When it was sent, in seconds of engine time since the start of the run.
    pub at_s: f64,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Until the first generated text.
    pub ttft_ms: f64,
    total_ms: f64,
    prompt_tokens: u64,
    cached_tokens: u64,
    completion_tokens: u64,
}

impl Record {
    /// Of an answer to the `turn`th request of a session, sent at `at` (wall time).
    pub fn new((session, turn): (usize, usize), at: Duration, answer: &Result<Answer>, speedup: f64) -> Self {
        let ms = |wall: Duration| wall.as_secs_f64() * 1000.0 * speedup;
        let error = match answer {
            Ok(answer) if answer.first_token.is_some() => None,
            Ok(_) => Some("an answer without text".to_owned()),
            Err(error) => Some(format!("{error:#}")),
        };
        let answer = answer.as_ref().ok().cloned().unwrap_or_default();
        Self {
            session,
            turn,
            at_s: at.as_secs_f64() * speedup,
            error,
            ttft_ms: ms(answer.first_token.unwrap_or_default()),
            total_ms: ms(answer.total),
            prompt_tokens: answer.usage.prompt_tokens,
            cached_tokens: answer.usage.cached_tokens(),
            completion_tokens: answer.usage.completion_tokens,
        }
    }
}

/// A run as a whole; failed requests count in `requests` and `errors` only.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    workload: &'static str,
    requests: usize,
    /// Requests that failed.
    pub errors: usize,
    ttft_p50_ms: f64,
    ttft_p95_ms: f64,
    ttft_mean_ms: f64,
    total_p50_ms: f64,
    total_p95_ms: f64,
    /// Cached prompt tokens over all prompt tokens, 0 to 1.
    cached_share: f64,
    prompt_tokens: u64,
    completion_tokens: u64,
    duration_s: f64,
}

impl Summary {
    /// Of all records of a run that took `duration` (engine time).
    pub fn of(workload: &'static str, records: &[Record], duration: Duration) -> Self {
        let good: Vec<_> = records.iter().filter(|record| record.error.is_none()).collect();
        let ttft: Vec<_> = good.iter().map(|record| record.ttft_ms).collect();
        let total: Vec<_> = good.iter().map(|record| record.total_ms).collect();
        let sum = |field: fn(&Record) -> u64| good.iter().map(|record| field(record)).sum::<u64>();
        let prompt_tokens = sum(|record| record.prompt_tokens);
        Self {
            workload,
            requests: records.len(),
            errors: records.len() - good.len(),
            ttft_p50_ms: quantile(&ttft, 0.5),
            ttft_p95_ms: quantile(&ttft, 0.95),
            ttft_mean_ms: ttft.iter().sum::<f64>() / ttft.len().max(1) as f64,
            total_p50_ms: quantile(&total, 0.5),
            total_p95_ms: quantile(&total, 0.95),
            cached_share: sum(|record| record.cached_tokens) as f64 / prompt_tokens.max(1) as f64,
            prompt_tokens,
            completion_tokens: sum(|record| record.completion_tokens),
            duration_s: duration.as_secs_f64(),
        }
    }
}

/// The nearest-rank quantile, 0 of nothing.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_seen() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert_eq!(quantile(&values, 0.95), 5.0);
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_failure_counts_but_has_no_time() {
        let answer = Answer { first_token: Some(Duration::from_millis(7)), ..Answer::default() };
        let good = Record::new((0, 0), Duration::ZERO, &Ok(answer), 10.0);
        let bad = Record::new((1, 0), Duration::ZERO, &Err(anyhow::anyhow!("503")), 10.0);
        let summary = Summary::of("control", &[good, bad], Duration::from_secs(1));
        assert_eq!((summary.requests, summary.errors), (2, 1));
        assert_eq!(summary.ttft_p50_ms, 70.0);
    }
}
