//! `[[workerset]]`: an internally homogeneous set of workers.

use std::path::PathBuf;

use super::{
    address::url,
    keys::Keys,
    kind::{Choice, FilePath, count, port, text},
    selector::object_name,
};

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

impl WorkerSetConfig {
    /// Placeholders for the required keys.
    pub(super) fn blank() -> Self {
        let discovery = Discovery::Static { workers_file: PathBuf::new() };
        Self { name: String::new(), profile: String::new(), kv_block_size: 0, render_url: None, discovery }
    }

    pub(super) fn keys<K: Keys>(&mut self, keys: &mut K) {
        keys.required("name", text(), &mut self.name);
        keys.required("profile", text(), &mut self.profile);
        keys.required("kv_block_size", count(1), &mut self.kv_block_size);
        keys.optional("render_url", url(), &mut self.render_url);
        let mut discovery = DiscoveryKeys::from(self.discovery.clone());
        keys.section("discovery", |keys| discovery.keys(keys));
        self.discovery = discovery.into();
    }
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
    /// The pods of an InferencePool of the Gateway API Inference Extension.
    InferencePool {
        /// `pool_name`
        pool_name: String,
        /// `namespace`; unset: inherited.
        namespace: Option<String>,
        /// `discovery.defaults`; the pool says the HTTP ports.
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

impl PortDefaults {
    pub(super) fn keys(&mut self, keys: &mut impl Keys) {
        keys.key("http_port", port(), &mut self.http_port);
        keys.key("zmq_port", port(), &mut self.zmq_port);
        keys.optional("replay_port", port(), &mut self.replay_port);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Mode {
    #[default]
    Static,
    Kubernetes,
    InferencePool,
}

const MODES: Choice<Mode> = Choice(&[
    ("static", Mode::Static),
    ("kubernetes", Mode::Kubernetes),
    ("inference_pool", Mode::InferencePool),
]);

/// `[workerset.discovery]` as it is written: all keys side by side, some of them due in one mode only.
#[derive(Debug, Default)]
struct DiscoveryKeys {
    mode: Mode,
    workers_file: Option<PathBuf>,
    service_name: Option<String>,
    pool_name: Option<String>,
    namespace: Option<String>,
    defaults: PortDefaults,
}

impl DiscoveryKeys {
    fn keys<K: Keys>(&mut self, keys: &mut K) {
        let sure = keys.key("mode", MODES, &mut self.mode);
        let due = |mode| sure && self.mode == mode;
        keys.maybe("workers_file", FilePath, (&mut self.workers_file, due(Mode::Static)));
        keys.maybe("service_name", object_name(), (&mut self.service_name, due(Mode::Kubernetes)));
        keys.maybe("pool_name", object_name(), (&mut self.pool_name, due(Mode::InferencePool)));
        keys.optional("namespace", object_name(), &mut self.namespace);
        keys.section("defaults", |keys| self.defaults.keys(keys));
        match self.mode {
            Mode::Static => {
                keys.idle(&["service_name", "pool_name", "namespace"], "with `mode = \"static\"`");
            }
            Mode::Kubernetes => {
                keys.idle(&["workers_file", "pool_name"], "with `mode = \"kubernetes\"`");
            }
            Mode::InferencePool => {
                keys.idle(&["workers_file", "service_name"], "with `mode = \"inference_pool\"`");
            }
        }
        if self.mode == Mode::Static && self.defaults != PortDefaults::default() {
            keys.idle(&["defaults"], "with `mode = \"static\"`");
        }
    }
}

impl From<Discovery> for DiscoveryKeys {
    fn from(discovery: Discovery) -> Self {
        match discovery {
            Discovery::Static { workers_file } => {
                Self { workers_file: Some(workers_file), ..Self::default() }
            }
            Discovery::Kubernetes { service_name, namespace, defaults } => Self {
                mode: Mode::Kubernetes,
                service_name: Some(service_name),
                namespace,
                defaults,
                ..Self::default()
            },
            Discovery::InferencePool { pool_name, namespace, defaults } => Self {
                mode: Mode::InferencePool,
                pool_name: Some(pool_name),
                namespace,
                defaults,
                ..Self::default()
            },
        }
    }
}

impl From<DiscoveryKeys> for Discovery {
    // What is due and missing has been reported: the placeholders do not get out.
    fn from(keys: DiscoveryKeys) -> Self {
        match keys.mode {
            Mode::Static => Self::Static { workers_file: keys.workers_file.unwrap_or_default() },
            Mode::Kubernetes => Self::Kubernetes {
                service_name: keys.service_name.unwrap_or_default(),
                namespace: keys.namespace,
                defaults: keys.defaults,
            },
            Mode::InferencePool => Self::InferencePool {
                pool_name: keys.pool_name.unwrap_or_default(),
                namespace: keys.namespace,
                defaults: keys.defaults,
            },
        }
    }
}
