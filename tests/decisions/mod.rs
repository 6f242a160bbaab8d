//! What the ext_proc tests share: a decision with one fallback, and what it tells the proxy.

use std::sync::Arc;

use kinference::types::{Candidate, Decision, Degradation, Prediction, Target, WorkerId, WorkerTarget};

/// What that decision tells the proxy.
pub const DESTINATIONS: &str = "10.0.0.1:80,10.0.0.2:80";

/// Two candidates, the first one chosen.
pub fn decision() -> Arc<Decision> {
    let candidate = |id: u64| Candidate {
        prediction: Prediction { ttft_ms: 12.34, cached_blocks: 3.0, ..Prediction::default() },
        degraded: vec![Degradation::NoMetrics],
        ..Candidate::new(
            Target::Worker(WorkerTarget {
                id: WorkerId(id),
                name: format!("w{id}").into(),
                workerset: "set".into(),
                endpoint: format!("10.0.0.{id}:80").into(),
            }),
            None,
        )
    };
    Arc::new(Decision {
        model: Some("tiny".into()),
        prompt_tokens: Some(9),
        candidates: vec![candidate(1), candidate(2)],
        fallbacks: vec![1],
        ..Decision::default()
    })
}
