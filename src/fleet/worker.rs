//! A worker as discovery describes it: immutable, compared to find what changed.

use std::sync::Arc;

use crate::{
    config::{Profile, Topology},
    types::WorkerId,
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
    /// The model of its configuration; what it serves until `/v1/models` has answered.
    pub model_name: Arc<str>,
    /// KV-event PUB socket.
    pub zmq_endpoint: Option<String>,
    /// Replay socket.
    pub replay_endpoint: Option<String>,
    /// `/metrics`
    pub metrics_url: Option<String>,
    /// HTTP base.
    pub http_url: Option<String>,
    /// `ip:port` for the proxy.
    pub endpoint: Arc<str>,
    /// Topology labels.
    pub topology: Topology,
    /// Discovery says that it is shutting down: serves what it has, gets nothing new.
    pub terminating: bool,
}
