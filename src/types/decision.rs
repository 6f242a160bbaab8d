//! The one value that every pick yields; logs, headers, the dashboard and the tests all read it.

use std::sync::Arc;

use super::{Prediction, Ruled, Target, WorkerTarget};

/// Leading blocks of a prompt that a worker holds, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Overlap {
    /// On the accelerator, as its KV events say.
    pub confirmed: u32,
    /// Leading blocks when those on lower storage tiers count too; never below `confirmed`.
    pub any_tier: u32,
    /// Leading blocks when prefixes that in-flight requests still prefill count too; never below `confirmed`.
    pub expected: u32,
}

/// A way in which a decision, or one candidate's prediction, was made on less than full knowledge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Degradation {
    /// Routed on load alone because the request is no inference call.
    NotInference,
    /// The body could not be decoded (unknown content encoding).
    UnknownEncoding,
    /// Tokenization failed: load only.
    TokenizeFailed,
    /// The deadline passed before the prompt was tokenized: load only.
    Deadline,
    /// The body is not seen before the destination is due (STREAMED mode): load only.
    BodyUnseen,
    /// Part of the prompt earns no cache credit, because what salts it is not known.
    UnknownSalt,
    /// The worker that made the response is not known any more.
    StickyMiss,
    /// The request names an InferencePool while policies are off: load only.
    PoolUnknown,
    /// The candidate's load was never scraped: counted as zero.
    NoMetrics,
    /// The candidate's last scrape is too old: the worst known load of the fleet is assumed.
    StaleMetrics,
    /// The candidate sends no KV events: what it holds is not known.
    NoKvEvents,
    /// The candidate's KV events could not be replayed: older blocks are not known.
    LiveOnly,
}

impl Degradation {
    /// Every one, for metrics.
    pub const ALL: [Self; 12] = [
        Self::NotInference,
        Self::UnknownEncoding,
        Self::TokenizeFailed,
        Self::Deadline,
        Self::BodyUnseen,
        Self::UnknownSalt,
        Self::StickyMiss,
        Self::PoolUnknown,
        Self::NoMetrics,
        Self::StaleMetrics,
        Self::NoKvEvents,
        Self::LiveOnly,
    ];

    /// The metric label and the word in logs and headers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotInference => "not_inference",
            Self::UnknownEncoding => "unknown_encoding",
            Self::TokenizeFailed => "tokenize_failed",
            Self::Deadline => "deadline",
            Self::BodyUnseen => "body_unseen",
            Self::UnknownSalt => "unknown_salt",
            Self::StickyMiss => "sticky_miss",
            Self::PoolUnknown => "pool_unknown",
            Self::NoMetrics => "no_metrics",
            Self::StaleMetrics => "stale_metrics",
            Self::NoKvEvents => "no_kv_events",
            Self::LiveOnly => "live_only",
        }
    }

    /// What it means, in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::NotInference => "no inference call: routed on load alone",
            Self::UnknownEncoding => "the body's encoding is not known: routed on load alone",
            Self::TokenizeFailed => "the prompt could not be tokenized: routed on load alone",
            Self::Deadline => "tokenizing took too long: routed on load alone",
            Self::BodyUnseen => "the body came after the decision: routed on load alone",
            Self::UnknownSalt => "part of the prompt earns no cache credit: what salts it is not known",
            Self::StickyMiss => "the worker that made the response is not known any more",
            Self::PoolUnknown => "names a pool while policies are off: routed on load alone",
            Self::NoMetrics => "the worker's load was never scraped: counted as zero",
            Self::StaleMetrics => "the worker's load is old: the worst of the fleet is assumed",
            Self::NoKvEvents => "the worker sends no KV events: what it holds is not known",
            Self::LiveOnly => "the worker's KV events were not replayed: older blocks are not known",
        }
    }
}

/// Why a worker or a provider was no candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovedReason {
    /// It does not serve the model.
    OtherModel,
    /// It was evicted (its KV block size is not the worker set's).
    Evicted,
    /// Discovery says that it does not take requests now.
    NotReady,
    /// It is shutting down.
    Terminating,
    /// It was taken out of new picks, by its description or by hand.
    Cordoned,
    /// The engine sleeps.
    Asleep,
    /// The prompt is longer than its `max_model_len`.
    PromptTooLong,
    /// It is not in the subset that the proxy gave.
    NotInSubset,
    /// The caller wants none of it.
    Excluded,
    /// It keeps failing.
    Failing,
    /// It left the fleet, or is another one now, while the request was being read.
    Gone,
    /// A step of a policy's rule took it away.
    Policy,
    /// The provider does not speak the request's API.
    OtherApi,
    /// What the provider would be sent can't be read as a whole.
    BodyUnseen,
    /// The provider's credential is not known.
    NoCredential,
}

impl RemovedReason {
    /// Every one, for table tests.
    pub const ALL: [Self; 15] = [
        Self::OtherModel,
        Self::Evicted,
        Self::NotReady,
        Self::Terminating,
        Self::Cordoned,
        Self::Asleep,
        Self::PromptTooLong,
        Self::NotInSubset,
        Self::Excluded,
        Self::Failing,
        Self::Gone,
        Self::Policy,
        Self::OtherApi,
        Self::BodyUnseen,
        Self::NoCredential,
    ];

    /// The word in logs and answers.
    pub const fn label(self) -> &'static str {
        match self {
            Self::OtherModel => "other_model",
            Self::Evicted => "evicted",
            Self::NotReady => "not_ready",
            Self::Terminating => "terminating",
            Self::Cordoned => "cordoned",
            Self::Asleep => "asleep",
            Self::PromptTooLong => "prompt_too_long",
            Self::NotInSubset => "not_in_subset",
            Self::Excluded => "excluded",
            Self::Failing => "failing",
            Self::Gone => "gone",
            Self::Policy => "policy",
            Self::OtherApi => "other_api",
            Self::BodyUnseen => "body_unseen",
            Self::NoCredential => "no_credential",
        }
    }
}

/// A worker or a provider that was no candidate, and why.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Removed {
    /// Who: see [`Target::label`].
    pub who: Arc<str>,
    /// The model as it was to serve it.
    pub model: Option<Arc<str>>,
    /// Why.
    pub reason: RemovedReason,
}

/// One that may serve the request, with everything that its rank followed from.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Candidate {
    /// Who it is.
    #[serde(flatten)]
    pub target: Target,
    /// The model as it knows it; `None`: the request names none.
    pub model: Option<Arc<str>>,
    /// Cached leading blocks.
    pub overlap: Overlap,
    /// The prediction, term by term.
    pub prediction: Prediction,
    /// Requests that wait there for their first token: others' in its queue, and our own.
    pub waiting: f64,
    /// Our own requests in flight there when the pick was made.
    pub own_in_flight: u32,
    /// What the rules of a pool make of it: those of a lower level come first, whatever their predictions.
    pub level: u32,
    /// It has answered nothing yet: while others have, it gets a few requests at a time.
    pub warming: bool,
    /// What this candidate's prediction lacks.
    pub degraded: Vec<Degradation>,
}

impl Candidate {
    /// One of which nothing is known: idle, and nothing predicted.
    pub fn new(target: Target, model: Option<Arc<str>>) -> Self {
        Self {
            target,
            model,
            overlap: Overlap::default(),
            prediction: Prediction::default(),
            waiting: 0.0,
            own_in_flight: 0,
            level: 0,
            warming: false,
            degraded: Vec::new(),
        }
    }
}

/// What was decided for one request, and everything that it followed from. One that is made has its chosen candidate.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Decision {
    /// The model that the request asks for, by the name that its client knows.
    pub model: Option<Arc<str>>,
    /// Prompt length in tokens, where it was tokenized.
    pub prompt_tokens: Option<usize>,
    /// All who may serve it and whom the rules leave, the best first.
    pub candidates: Vec<Candidate>,
    /// Index into `candidates` of the chosen one.
    pub chosen: usize,
    /// Indices into `candidates` of the fallbacks, in order.
    pub fallbacks: Vec<usize>,
    /// Those that were no candidates, or were taken away.
    pub removed: Vec<Removed>,
    /// Candidates that the rules took away.
    pub taken: Vec<Candidate>,
    /// What the pool's rules made of the request, if a pool publishes the model.
    pub ruled: Option<Arc<Ruled>>,
    /// What the whole decision lacks.
    pub degraded: Vec<Degradation>,
    /// The pick went to a cold worker to spread a hot prefix.
    pub replicated: bool,
}

impl Decision {
    /// The chosen candidate.
    pub fn primary(&self) -> &Candidate {
        &self.candidates[self.chosen]
    }

    /// What it was made without: as a whole, and of the chosen candidate.
    pub fn lacks(&self) -> impl Iterator<Item = Degradation> {
        self.degraded.iter().chain(&self.primary().degraded).copied()
    }

    /// The workers to send it to: the chosen one, then the fallbacks. None where a provider is chosen.
    pub fn workers(&self) -> impl Iterator<Item = &WorkerTarget> {
        let chosen = [self.chosen].into_iter().filter(|i| self.candidates[*i].target.worker().is_some());
        let all = chosen.flat_map(|chosen| [chosen].into_iter().chain(self.fallbacks.iter().copied()));
        all.filter_map(|i| self.candidates[i].target.worker())
    }

    /// `ip:port[,ip:port...]`: the chosen endpoint, then the fallbacks; `None` where a provider is chosen.
    pub fn destinations(&self) -> Option<String> {
        let endpoints: Vec<&str> = self.workers().map(|worker| &*worker.endpoint).collect();
        (!endpoints.is_empty()).then(|| endpoints.join(","))
    }
}
