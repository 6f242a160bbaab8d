//! `[[workerset]]`: an internally homogeneous set of workers.

use std::path::PathBuf;

/// One worker set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSetConfig {
    /// Unique, not empty.
    pub name: String,
    /// A defined profile.
    pub profile: String,
    /// Tokens per block in the events that these engines publish.
    pub kv_block_size: u32,
    /// Override for the engine's render endpoint.
    pub render_url: Option<String>,
    /// Where its workers come from.
    pub discovery: Discovery,
}

/// Where workers come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovery {
    /// A TOML file with `[[workers]]`, watched.
    Static {
        /// Its path.
        workers_file: PathBuf,
    },
    /// EndpointSlices of a Service.
    Kubernetes {
        /// `service_name`
        service_name: String,
        /// `namespace`; unset: inherited.
        namespace: Option<String>,
        /// `discovery.defaults`
        defaults: PortDefaults,
    },
}

/// Ports used when discovery finds no named port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortDefaults {
    /// The engine's HTTP port.
    pub http_port: u16,
    /// Its KV-event PUB port.
    pub zmq_port: u16,
    /// Its replay port.
    pub replay_port: Option<u16>,
}

impl Default for PortDefaults {
    fn default() -> Self {
        Self { http_port: 8000, zmq_port: 5557, replay_port: None }
    }
}
