//! The workers file: a flat `[[workers]]` list.

use std::sync::Arc;

/// Where a worker runs; for the dashboard and observations only.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Topology {
    /// `pod_name`
    pub pod_name: Option<String>,
    /// `namespace`
    pub namespace: Option<String>,
    /// `node_name`
    pub node_name: Option<String>,
    /// `node_ip`
    pub node_ip: Option<String>,
    /// `pod_ip`
    pub pod_ip: Option<String>,
    /// `availability_zone`
    pub availability_zone: Option<String>,
    /// `instance_type`
    pub instance_type: Option<String>,
}

/// One validated entry of the workers file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEntry {
    /// Unique across worker sets.
    pub worker_id_str: Arc<str>,
    /// Unique across worker sets.
    pub worker_id_num: u64,
    /// Filters label-matched engine metrics.
    pub model_name: Arc<str>,
    /// KV-event PUB socket; `None` in mock mode only.
    pub zmq_endpoint: Option<String>,
    /// Replay socket; `None`: live only.
    pub replay_endpoint: Option<String>,
    /// `/metrics`; `None` leaves load at zero.
    pub metrics_url: Option<String>,
    /// HTTP base, for render and `/v1/models`.
    pub http_url: Option<String>,
    /// `ip:port` returned to callers; derived from `http_url` when unset.
    pub endpoint: Arc<str>,
    /// Topology labels.
    pub topology: Topology,
}
