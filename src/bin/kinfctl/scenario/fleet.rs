//! Workers as a file describes them; what is not said is idle, ready and knows nothing of the prompt.

use std::collections::BTreeMap;

use kinference::{
    load::{Freshness, LoadView},
    policy::eval::{Load, WorkerState as Known},
};
use serde::Deserialize;

/// Workers, by name.
pub type Fleet = BTreeMap<String, WorkerState>;

/// One worker.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkerState {
    /// Its worker set.
    pub worker_set: Option<String>,
    /// The models that its engine serves. Unset: those that the pool expects of its worker set.
    pub models: Option<Vec<String>>,
    /// Whether it takes new requests. Unset: it does.
    pub ready: Option<bool>,
    /// Requests of others that wait there.
    pub queue: Option<f64>,
    /// Requests that run there.
    pub running: Option<f64>,
    /// Use of its KV cache, in percent.
    pub kv_cache_use_percent: Option<f64>,
    /// Share of the prompt that it has in its KV cache, in percent.
    pub cached_percent: Option<f64>,
    /// Requests of this router in flight there.
    pub in_flight: Option<u32>,
    /// Of these, how many have no first token yet: they wait too.
    pub without_token: Option<u32>,
    /// Prefill work of this router's requests that waits there, in milliseconds.
    pub backlog_ms: Option<f64>,
    /// Milliseconds since its load was last known.
    pub staleness_ms: Option<f64>,
}

impl WorkerState {
    /// With what `change` says instead.
    fn changed(&self, change: &Self) -> Self {
        let (a, b) = (self.clone(), change.clone());
        Self {
            worker_set: b.worker_set.or(a.worker_set),
            models: b.models.or(a.models),
            ready: b.ready.or(a.ready),
            queue: b.queue.or(a.queue),
            running: b.running.or(a.running),
            kv_cache_use_percent: b.kv_cache_use_percent.or(a.kv_cache_use_percent),
            cached_percent: b.cached_percent.or(a.cached_percent),
            in_flight: b.in_flight.or(a.in_flight),
            without_token: b.without_token.or(a.without_token),
            backlog_ms: b.backlog_ms.or(a.backlog_ms),
            staleness_ms: b.staleness_ms.or(a.staleness_ms),
        }
    }

    /// Whether it takes new requests.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Whether its engine serves that model.
    pub fn serves(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|one| one == model))
    }

    /// Share of the prompt that it has cached, 0 to 1.
    pub fn cached(&self) -> f64 {
        self.cached_percent.unwrap_or_default().clamp(0.0, 100.0) / 100.0
    }

    /// What a prediction looks at.
    pub fn view(&self, stale_after_ms: f64) -> LoadView {
        let stale = self.staleness_ms.unwrap_or_default() > stale_after_ms;
        LoadView {
            freshness: if stale { Freshness::Stale } else { Freshness::Fresh },
            queue: self.queue.unwrap_or_default(),
            own_in_flight: self.in_flight.unwrap_or_default(),
            own_without_token: self.without_token.unwrap_or_default(),
            backlog_ms: self.backlog_ms.unwrap_or_default(),
            running: self.running.unwrap_or_default(),
            kv_usage: self.kv_cache_use_percent.unwrap_or_default() / 100.0,
            ..LoadView::default()
        }
    }

    /// What rules look at.
    pub fn load(&self) -> Load {
        Load {
            queue: self.queue.unwrap_or_default() + f64::from(self.without_token.unwrap_or_default()),
            running: self.running.unwrap_or_default(),
            kv_use_percent: self.kv_cache_use_percent.unwrap_or_default(),
        }
    }

    /// What steps look at.
    pub fn known(&self) -> Known {
        Known {
            load: self.load(),
            cached_percent: self.cached() * 100.0,
            staleness_ms: self.staleness_ms.unwrap_or_default(),
        }
    }
}

/// The fleet of a case: `base`, with what the case says of some workers.
pub fn changed(base: &Fleet, changes: &Fleet) -> Fleet {
    let mut out = base.clone();
    for (name, change) in changes {
        let worker = out.entry(name.clone()).or_default();
        *worker = worker.changed(change);
    }
    out
}
