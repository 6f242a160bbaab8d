//! A worker as discovery describes it: immutable, compared to find what changed.

use std::sync::Arc;

use crate::{
    config::{Profile, Topology},
    types::{Rank, WorkerId},
};

/// An internally homogeneous set: same model, engine, KV block size, profile.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkerSet {
    /// Unique name.
    pub name: Arc<str>,
    /// How its prompts are tokenized, predicted and picked.
    pub profile: Arc<Profile>,
    /// Tokens per KV block.
    pub kv_block_size: u32,
    /// Override for the render endpoint.
    pub render_url: Option<String>,
}

/// One engine endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Worker {
    /// `worker_id_num`
    pub id: WorkerId,
    /// `worker_id_str`
    pub name: Arc<str>,
    /// The set that it belongs to.
    pub set: Arc<WorkerSet>,
    /// The model of its configuration; what it serves until `/v1/models` has answered. Empty: not known until then.
    pub model_name: Arc<str>,
    /// Where it tells of its KV cache.
    pub kv: KvSource,
    /// `/metrics`
    pub metrics_url: Option<String>,
    /// HTTP base.
    pub http_url: Option<String>,
    /// `ip:port` for the proxy.
    pub endpoint: Arc<str>,
    /// Topology labels.
    pub topology: Topology,
    /// Whether discovery says that it takes requests.
    pub availability: Availability,
}

impl Worker {
    /// Whether `other` describes the same engine, reached in the same way: then what is known of one holds for the
    /// other. Where it runs, whether it takes requests and how its set is routed may differ.
    pub fn is_same_engine(&self, other: &Self) -> bool {
        let set = |worker: &Self| (worker.set.name.clone(), worker.set.kv_block_size);
        let urls = |worker: &Self| (worker.metrics_url.clone(), worker.http_url.clone());
        self.id == other.id
            && self.name == other.name
            && set(self) == set(other)
            && self.model_name == other.model_name
            && self.kv == other.kv
            && urls(self) == urls(other)
            && self.endpoint == other.endpoint
    }
}

/// Whether a worker takes requests, as far as discovery knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Availability {
    /// It does.
    #[default]
    Ready,
    /// Not at the moment: its knowledge is kept.
    NotReady,
    /// It would, but its description takes it out of new picks: its knowledge is kept.
    Cordoned,
    /// It is shutting down: serves what it has, gets nothing new.
    Terminating,
}

/// Where a worker tells of its KV cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KvSource {
    /// Nowhere (mock mode).
    #[default]
    Unknown,
    /// On these sockets, one for each data-parallel rank.
    Sockets(Vec<KvSockets>),
    /// Where the engine itself says, at its `/kv_event_sources`.
    Engine,
}

impl KvSource {
    /// How many sockets are known from the description.
    pub fn sockets(&self) -> usize {
        match self {
            Self::Unknown | Self::Engine => 0,
            Self::Sockets(sockets) => sockets.len(),
        }
    }

    /// One rank that publishes at `events`, if anywhere.
    pub fn single(events: Option<String>, replay: Option<String>) -> Self {
        events.map_or(Self::Unknown, |events| {
            Self::Sockets(vec![KvSockets { rank: Rank::default(), events, replay }])
        })
    }
}

/// Where one data-parallel rank publishes its KV events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvSockets {
    /// The rank.
    pub rank: Rank,
    /// Its PUB socket.
    pub events: String,
    /// Its replay socket; `None`: live only.
    pub replay: Option<String>,
}
