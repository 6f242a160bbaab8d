//! Nodes -> what a worker's topology says of its node. Pure.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::core::v1::Node;

use crate::config::Topology;

const ZONE: &str = "topology.kubernetes.io/zone";
const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";

/// What is known of nodes, by name. Empty where they may not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nodes(BTreeMap<String, NodeFacts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeFacts {
    ip: Option<String>,
    zone: Option<String>,
    instance_type: Option<String>,
}

impl Nodes {
    /// Of these nodes.
    pub fn of(nodes: &[Arc<Node>]) -> Self {
        Self(nodes.iter().filter_map(|node| Some((node.metadata.name.clone()?, facts(node)))).collect())
    }

    /// Adds what is known of the node that is named there. What the place says itself comes first.
    pub fn complete(&self, topology: &mut Topology) {
        let Some(node) = topology.node_name.as_ref().and_then(|name| self.0.get(name)) else { return };
        topology.node_ip.clone_from(&node.ip);
        topology.instance_type.clone_from(&node.instance_type);
        if topology.availability_zone.is_none() {
            topology.availability_zone.clone_from(&node.zone);
        }
    }
}

fn facts(node: &Node) -> NodeFacts {
    let label = |name: &str| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(name)).filter(|value| !value.is_empty()).cloned()
    };
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let ip = addresses.filter(|address| address.type_ == "InternalIP").map(|address| address.address.clone());
    NodeFacts { ip: ip.take(1).next(), zone: label(ZONE), instance_type: label(INSTANCE_TYPE) }
}
