//! InferencePool of the Gateway API Inference Extension: which pods, and which of their ports. Only what we read of it.

use std::collections::BTreeMap;

use kube::{CustomResource, core::Selector};
use serde::{Deserialize, Serialize};

use super::{engines::Ports, slices::port_number, spec::Source};

/// The pods that serve a model.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "inference.networking.k8s.io",
    version = "v1",
    kind = "InferencePool",
    namespaced,
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct InferencePoolSpec {
    /// Which pods.
    pub selector: PoolSelector,
    /// Which of their ports: each is an engine.
    pub target_ports: Vec<TargetPort>,
}

/// Labels that pods must have.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolSelector {
    /// All of them.
    pub match_labels: BTreeMap<String, String>,
}

/// A port.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct TargetPort {
    /// Its number.
    pub number: i32,
}

/// As many ports as the API allows.
const MAX_PORTS: usize = 8;

/// Where the engines of a pool are, and on which ports; `None` for one that selects nothing.
pub fn source(pool: &InferencePool, namespace: &str) -> Option<(Source, Ports)> {
    let labels: Selector = pool.spec.selector.match_labels.clone().into_iter().collect();
    let mut numbers: Vec<u16> = Vec::new();
    for port in pool.spec.target_ports.iter().take(MAX_PORTS).filter_map(|port| port_number(port.number)) {
        if !numbers.contains(&port) {
            numbers.push(port);
        }
    }
    if labels.selects_all() || numbers.is_empty() {
        return None;
    }
    let source = Source::Pods { namespace: namespace.to_owned(), labels: labels.to_string() };
    Some((source, Ports::Numbers(numbers)))
}
