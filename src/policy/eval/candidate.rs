//! Candidates as steps see them, and the conditions that steps put to them.

use super::{condition::Between, request::Load};

/// Something that may serve the request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Index of its backend in the requested model's.
    pub backend: usize,
    /// Predicted milliseconds to the first token.
    pub ttft_ms: f64,
    /// What is known of it, if it is a worker.
    pub worker: Option<WorkerState>,
}

/// What is known of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerState {
    /// Its load.
    pub load: Load,
    /// Share of the prompt that it has cached, in percent.
    pub cached_percent: f64,
    /// Milliseconds since its load was last known.
    pub staleness_ms: f64,
}

/// The backends of a model for which something holds: bit N is backend N.
pub(in crate::policy) type BackendMask = u32;

/// What `exclude`, `keep` and `prefer` say of a candidate.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::policy) struct CandidateCondition {
    /// For each model of the pool: the backends that fit by kind and name.
    pub backends: Box<[BackendMask]>,
    pub queue: Option<Between>,
    pub running: Option<Between>,
    pub kv_use: Option<Between>,
    pub cached: Option<Between>,
    pub staleness: Option<Between>,
}

impl CandidateCondition {
    /// Whether it says anything of load or cache, which only workers have.
    pub fn of_workers_only(&self) -> bool {
        [self.queue, self.running, self.kv_use, self.cached, self.staleness].iter().any(Option::is_some)
    }

    pub(super) fn holds(&self, model: usize, candidate: &Candidate) -> bool {
        let bit = BackendMask::checked_shl(1, candidate.backend as u32).unwrap_or_default();
        let fits = self.backends.get(model).is_some_and(|mask| mask & bit != 0);
        fits && match &candidate.worker {
            Some(worker) => self.holds_of_worker(worker),
            None => !self.of_workers_only(),
        }
    }

    fn holds_of_worker(&self, worker: &WorkerState) -> bool {
        let within = |between: Option<Between>, value: f64| between.is_none_or(|between| between.has(value));
        within(self.queue, worker.load.queue)
            && within(self.running, worker.load.running)
            && within(self.kv_use, worker.load.kv_use_percent)
            && within(self.cached, worker.cached_percent)
            && within(self.staleness, worker.staleness_ms)
    }
}
