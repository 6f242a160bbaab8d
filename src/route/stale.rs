//! Candidates whose load is only assumed: predicted no cheaper, for their load, than the slowest whose load is known.
//!
//! Their last scrape cannot tell a hung engine from an idle one, and no single number of the fleet stands for the
//! worst: the penalty for running requests falls again as they grow. Pure; f64 milliseconds.

use crate::types::{Candidate, Degradation};

/// Raises the predictions of stale candidates by what their load seems to be cheaper than the worst known one.
pub fn assume_worst(candidates: &mut [Candidate]) {
    // Of a provider's load nothing is known, so it is nobody's measure.
    let known = candidates.iter().filter(|c| c.target.worker().is_some() && !is_stale(c));
    let worst = known.map(load_ms).fold(0.0, f64::max);
    for candidate in candidates.iter_mut().filter(|c| is_stale(c)) {
        let assumed = (worst - load_ms(candidate)).max(0.0);
        candidate.prediction.assumed_ms = assumed;
        candidate.prediction.ttft_ms += assumed;
    }
}

/// Whether the candidate's load is assumed, not known.
pub(super) fn is_stale(candidate: &Candidate) -> bool {
    candidate.degraded.contains(&Degradation::StaleMetrics)
}

/// What of the prediction is due to the worker's load, not to this prompt.
fn load_ms(candidate: &Candidate) -> f64 {
    let p = &candidate.prediction;
    p.ttft_ms - p.base_ms - p.prefill_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        route::pick::tests::{candidate, provider},
        types::Prediction,
    };

    fn loaded(id: u64, load_ms: f64, prefill_ms: f64) -> Candidate {
        let ttft_ms = 400.0 + load_ms + prefill_ms;
        let prediction =
            Prediction { ttft_ms, base_ms: 400.0, backlog_ms: load_ms, prefill_ms, ..Prediction::default() };
        Candidate { prediction, ..candidate(id, ttft_ms, 0) }
    }

    #[test]
    fn a_hung_engine_is_as_loaded_as_the_worst() {
        let mut c =
            [loaded(1, 50.0, 10.0), loaded(2, 700.0, 10.0), loaded(3, 0.0, 10.0), loaded(4, 900.0, 5.0)];
        c[2].degraded.push(Degradation::StaleMetrics);
        c[3].degraded.push(Degradation::StaleMetrics);
        assume_worst(&mut c);
        let ttft: Vec<_> = c.iter().map(|c| c.prediction.ttft_ms).collect();
        assert_eq!(ttft, [460.0, 1110.0, 1110.0, 1305.0]);
        assert_eq!(c[2].prediction.assumed_ms, 700.0);
    }

    #[test]
    fn a_slow_provider_says_nothing_of_the_load_of_workers() {
        let mut c = [loaded(1, 50.0, 10.0), loaded(2, 0.0, 10.0), provider(9000.0)];
        c[1].degraded.push(Degradation::StaleMetrics);
        assume_worst(&mut c);
        let ttft: Vec<_> = c.iter().map(|c| c.prediction.ttft_ms).collect();
        assert_eq!(ttft, [460.0, 460.0, 9000.0]);
    }

    #[test]
    fn where_nobodys_load_is_known_all_stay_as_they_are() {
        let mut c = [loaded(1, 50.0, 10.0), loaded(2, 70.0, 0.0)];
        c.iter_mut().for_each(|c| c.degraded.push(Degradation::StaleMetrics));
        let before = c.clone();
        assume_worst(&mut c);
        assert_eq!(c, before);
    }
}
