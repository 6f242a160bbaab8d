//! What is known of a worker beyond its description. Each field has one writer, named beside it; all read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::sync::Notify;

use crate::types::{Degradation, Outcome};

/// How far a worker's KV events can be trusted. Written by `ingest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case", tag = "state", content = "reason")]
pub enum KvState {
    /// No subscription has said anything yet.
    #[default]
    Unknown,
    /// A replay is running.
    Replaying,
    /// What it holds is known: replayed, or nothing to replay.
    Synced,
    /// Live events only: blocks from before are not known.
    LiveOnly,
    /// The subscription is broken and being dialled anew.
    Disconnected,
    /// It publishes something that can't be used, in words: no traffic until it is discovered anew.
    Evicted(String),
}

impl KvState {
    /// The metric label.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Replaying => "replaying",
            Self::Synced => "synced",
            Self::LiveOnly => "live_only",
            Self::Disconnected => "disconnected",
            Self::Evicted(_) => "evicted",
        }
    }

    /// What a prediction for the worker lacks because of it.
    pub fn lacks(&self) -> Option<Degradation> {
        match self {
            Self::Synced | Self::Evicted(_) => None,
            Self::LiveOnly => Some(Degradation::LiveOnly),
            Self::Unknown | Self::Replaying | Self::Disconnected => Some(Degradation::NoKvEvents),
        }
    }

    /// What is amiss, in words; `None`: what the worker holds is known.
    pub fn amiss(&self) -> Option<String> {
        match self {
            Self::Synced => None,
            Self::LiveOnly => Some("its KV events are live only: blocks from before are not known".into()),
            Self::Unknown => Some("no KV events yet".into()),
            Self::Replaying => Some("its KV events are being replayed".into()),
            Self::Disconnected => Some("its KV-event socket is not reached".into()),
            Self::Evicted(why) => Some(format!("evicted: {why}")),
        }
    }
}

/// The last live batch of KV events.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// When it came, in milliseconds since the epoch.
    pub at_ms: u64,
    /// How long it took from the engine's clock to ours, in milliseconds; clocks that differ make it negative.
    pub lag_ms: f64,
}

/// One entry of a worker's `/v1/models`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct ModelCard {
    /// What requests name.
    pub id: Arc<str>,
    /// The base model, for a LoRA adapter.
    pub parent: Option<Arc<str>>,
    /// Longest prompt plus output, in tokens. An adapter without one has its base's.
    pub max_model_len: Option<usize>,
    /// Shown, never acted on.
    pub owned_by: String,
}

/// Failures in a row after which a worker counts as failing.
pub const FAILURES_TO_FAIL: u32 = 3;
/// Scrapes and polls missed in a row after which a worker counts as failing.
pub const MISSED_POLLS_TO_FAIL: u32 = 5;

/// What a response changed about its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It fails now: no traffic.
    BeganToFail,
    /// It failed, and does not any more.
    Recovered,
}

/// The live status of one worker.
#[derive(Debug, Default)]
pub struct Status {
    /// Written by `ingest::kv`.
    pub kv: ArcSwap<KvState>,
    /// Notified by `ingest::scrape` when a scrape shows that the engine computed since the last one, heard by
    /// `ingest::kv`: then events should come too.
    pub kv_expected: Notify,
    /// Written by `ingest::kv`: the last live batch of events.
    pub kv_heard: ArcSwapOption<Heard>,
    /// Written by `ingest::kv`: how often following the events has begun, at first or again.
    pub kv_begun: AtomicU32,
    /// Written by `ingest::models`; `None` until `/v1/models` has answered.
    pub models: ArcSwapOption<Vec<ModelCard>>,
    /// Written by `ingest::scrape`: the engine sleeps.
    pub asleep: AtomicBool,
    /// Written by `admin`: taken out of new picks by hand, until it is put back or the worker leaves.
    pub cordoned: AtomicBool,
    /// Written by `pipeline` as requests end, and by the probe of `ingest::scrape`: failed responses in a row.
    pub failures: AtomicU32,
    /// Written by `pipeline`: a request has had its first token, or its whole answer, from it.
    pub answered: AtomicBool,
    /// Written by `ingest::scrape`: failed scrapes in a row.
    pub missed_scrapes: AtomicU32,
    /// Written by `ingest::models`: failed polls in a row.
    pub missed_models: AtomicU32,
    /// Written by `pipeline`: requests that it served and that ended, by [`Outcome`].
    ended: [AtomicU64; Outcome::ENDS.len()],
}

impl Status {
    /// Records how a response from the worker went; what that changed.
    pub fn record(&self, failed: bool) -> Option<Turn> {
        if failed {
            let now = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
            (now == FAILURES_TO_FAIL).then_some(Turn::BeganToFail)
        } else {
            self.probed().then_some(Turn::Recovered)
        }
    }

    /// A request that it served ended.
    pub fn count(&self, outcome: Outcome) {
        if let Some(ended) = self.ended.get(outcome as usize) {
            ended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests that it served and that ended, by how.
    pub fn ended(&self) -> impl Iterator<Item = (Outcome, u64)> {
        Outcome::ENDS.into_iter().zip(&self.ended).map(|(outcome, n)| (outcome, n.load(Ordering::Relaxed)))
    }

    /// The engine was reached: response failures are forgotten. Whether they were enough to keep traffic away.
    pub fn probed(&self) -> bool {
        self.failures.swap(0, Ordering::Relaxed) >= FAILURES_TO_FAIL
    }

    /// Responses keep failing: gets no traffic, so only a probe brings it back.
    pub fn needs_probe(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_TO_FAIL
    }

    /// It publishes something that can't be used: no traffic until it is discovered anew.
    pub fn is_evicted(&self) -> bool {
        matches!(**self.kv.load(), KvState::Evicted(_))
    }
}
