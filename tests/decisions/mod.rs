//! What the ext_proc tests share: a decision with one fallback, and what it tells the proxy.

use std::sync::Arc;

use kinference::types::{
    Candidate, Decision, Degradation, Overlap, Prediction, Target, WorkerId, WorkerTarget,
};

/// What that decision tells the proxy.
pub const DESTINATIONS: &str = "10.0.0.1:80,10.0.0.2:80";

/// Two candidates, the first one chosen.
pub fn decision() -> Arc<Decision> {
    let candidate = |id: u64| Candidate {
        target: Target::Worker(WorkerTarget {
            id: WorkerId(id),
            name: format!("w{id}").into(),
            workerset: "set".into(),
            endpoint: format!("10.0.0.{id}:80").into(),
        }),
        model: None,
        overlap: Overlap::default(),
        prediction: Prediction { ttft_ms: 12.34, cached_blocks: 3.0, ..Prediction::default() },
        waiting: 0.0,
        own_in_flight: 0,
        level: 0,
        warming: false,
        degraded: vec![Degradation::NoMetrics],
    };
    Arc::new(Decision {
        model: Some("tiny".into()),
        prompt_tokens: Some(9),
        candidates: vec![candidate(1), candidate(2)],
        chosen: 0,
        fallbacks: vec![1],
        removed: vec![],
        taken: vec![],
        ruled: None,
        degraded: vec![],
        replicated: false,
    })
}
