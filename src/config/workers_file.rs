//! The workers file: a flat `[[workers]]` list.

use std::sync::Arc;

use super::{
    address::{base_url, endpoint_of, host_port, url, zmq},
    keys::Keys,
    kind::{Bool, any_text, text, whole},
};

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
    /// Taken out of new picks.
    pub cordoned: bool,
    /// Topology labels.
    pub topology: Topology,
}

impl WorkerEntry {
    /// Placeholders for the required keys.
    pub(super) fn blank() -> Self {
        Self {
            worker_id_str: "".into(),
            worker_id_num: 0,
            model_name: "".into(),
            zmq_endpoint: None,
            replay_endpoint: None,
            metrics_url: None,
            http_url: None,
            endpoint: "".into(),
            cordoned: false,
            topology: Topology::default(),
        }
    }

    pub(super) fn keys(&mut self, keys: &mut impl Keys, mock_mode: bool) {
        keys.required("worker_id_str", text(), &mut self.worker_id_str);
        keys.required("worker_id_num", whole(0, i64::MAX), &mut self.worker_id_num);
        keys.required("model_name", text(), &mut self.model_name);
        let accepted = "`tcp://host:port` or `ipc://path`; only in mock mode it may be left out";
        keys.maybe("zmq_endpoint", zmq().described(accepted), (&mut self.zmq_endpoint, !mock_mode));
        keys.optional("replay_endpoint", zmq(), &mut self.replay_endpoint);
        keys.optional("metrics_url", url(), &mut self.metrics_url);
        let base_sound = keys.optional("http_url", base_url(), &mut self.http_url);
        let mut endpoint = None;
        let accepted = "`host:port`, or left out where `http_url` is set";
        let due = base_sound && self.http_url.is_none();
        keys.maybe("endpoint", host_port().described(accepted), (&mut endpoint, due));
        let derived = || self.http_url.as_deref().and_then(endpoint_of).map(Into::into);
        self.endpoint = endpoint.or_else(derived).unwrap_or_default();
        keys.key("cordoned", Bool, &mut self.cordoned);
        self.topology.keys(keys);
    }
}

impl Topology {
    fn keys(&mut self, keys: &mut impl Keys) {
        let labels = [
            ("pod_name", &mut self.pod_name),
            ("namespace", &mut self.namespace),
            ("node_name", &mut self.node_name),
            ("node_ip", &mut self.node_ip),
            ("pod_ip", &mut self.pod_ip),
            ("availability_zone", &mut self.availability_zone),
            ("instance_type", &mut self.instance_type),
        ];
        for (name, slot) in labels {
            keys.optional(name, any_text::<String>(), slot);
            // Templates write an empty label for one that they do not know.
            slot.take_if(|label| label.is_empty());
        }
    }
}
