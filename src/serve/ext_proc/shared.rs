//! What every stream reads: who decides, where bodies are held, the settings, the counts.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use serde_json::Value;

use super::stats::Stats;
use crate::{
    config::{ExtProcConfig, Observe},
    pipeline::{Incoming, Placement},
    prompt::BodyBudget,
    types::{ErrorShape, Rejection},
};

/// Decides a request: the pipeline, or a stand-in of a test.
pub type Decide = Arc<dyn Fn(Incoming) -> BoxFuture<'static, Result<Placement, Rejection>> + Send + Sync>;

/// What a pool publishes, where a request asks for that; `None`: it does not.
pub type Models = Arc<dyn Fn(&Incoming, ErrorShape) -> Option<Result<Value, Rejection>> + Send + Sync>;

/// Tells of a request that is turned away before it was decided.
pub type Refused = Arc<dyn Fn(&Incoming, &Rejection) + Send + Sync>;

/// What every session reads.
pub struct Shared {
    pub(super) decide: Decide,
    pub(super) models: Option<Models>,
    pub(super) refused: Refused,
    pub(super) budget: Arc<BodyBudget>,
    pub(super) config: ExtProcConfig,
    pub(super) stats: Stats,
    pub(super) ids: AtomicU64,
    pub(super) streams: AtomicU32,
    pub(super) told_unheeded: AtomicBool,
}

impl Shared {
    /// Whether the next stream's response is watched whole. A sample is spread evenly.
    pub(super) fn watches(&self) -> bool {
        match self.config.observe {
            Observe::Full => true,
            Observe::Headers => false,
            Observe::Sampled => {
                is_of_sample(self.streams.fetch_add(1, Ordering::Relaxed), self.config.observe_sample)
            }
        }
    }

    /// A proxy sends what it was told to keep.
    pub(super) fn unheeded(&self) {
        if !self.told_unheeded.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "`ext_proc.observe` has no effect: a proxy sends bodies of responses in spite of `mode_override`; its \
                 filter needs `allow_mode_override: true`, and no body mode that is full duplex"
            );
        }
    }

    /// An id for a request that came without one.
    pub(super) fn own_id(&self) -> Arc<str> {
        format!("kinference-{:016x}", self.ids.fetch_add(1, Ordering::Relaxed)).into()
    }
}

/// Whether that one of many streams is of a share of them that is spread evenly.
fn is_of_sample(number: u32, share: f64) -> bool {
    let before = |number: f64| (number * share).floor();
    before(f64::from(number) + 1.0) > before(f64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_large_as_it_should_be_and_spread_evenly() {
        let of =
            |share: f64, numbers: std::ops::Range<u32>| numbers.filter(|n| is_of_sample(*n, share)).count();
        for (share, each_hundred) in [(0.0, 0), (0.1, 10), (0.25, 25), (1.0, 100)] {
            for first in [0, 700, 1_000_000] {
                let found = of(share, first..first + 100);
                assert!(found.abs_diff(each_hundred) <= 1, "{share} from {first}: {found}");
            }
        }
    }
}
