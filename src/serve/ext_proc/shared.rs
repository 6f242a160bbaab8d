//! What every stream reads: who decides, where bodies are held, the settings, the counts.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use futures::future::BoxFuture;
use serde_json::Value;

use super::stats::Stats;
use crate::{
    config::ExtProcConfig,
    pipeline::{Incoming, Placement},
    prompt::BodyBudget,
    types::{ErrorShape, Rejection},
};

/// Decides a request: the pipeline, or a stand-in of a test.
pub type Decide = Arc<dyn Fn(Incoming) -> BoxFuture<'static, Result<Placement, Rejection>> + Send + Sync>;

/// What a pool publishes, where a request asks for that; `None`: it does not.
pub type Models = Arc<dyn Fn(&Incoming, ErrorShape) -> Option<Result<Value, Rejection>> + Send + Sync>;

/// What every session reads.
pub struct Shared {
    pub(super) decide: Decide,
    pub(super) models: Option<Models>,
    pub(super) budget: Arc<BodyBudget>,
    pub(super) config: ExtProcConfig,
    pub(super) stats: Stats,
    pub(super) ids: AtomicU64,
}

impl Shared {
    /// An id for a request that came without one.
    pub(super) fn own_id(&self) -> Arc<str> {
        format!("kinference-{:016x}", self.ids.fetch_add(1, Ordering::Relaxed)).into()
    }
}
