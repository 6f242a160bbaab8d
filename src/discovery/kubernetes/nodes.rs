//! What a worker's topology says of its node. One watch for all worker sets.
//!
//! Nobody needs it to route: where nodes may not be read, workers have no more topology than their pods say.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc};

use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::sync::watch;

use crate::{config::Topology, kubernetes::Watches};

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

/// Follows all nodes: what is known of them, and what keeps that true for as long as it runs.
pub fn watch_nodes(
    client: Client,
    watches: &Watches,
) -> (watch::Receiver<Arc<Nodes>>, impl Future<Output = Infallible> + Send + use<>) {
    let (mut watched, run) = watches.start_optional(Api::<Node>::all(client));
    let (known_to, known) = watch::channel(Arc::default());
    let read = async move {
        loop {
            watched.changed().await;
            // A node's heartbeat is no news.
            let now = Arc::new(Nodes::of(&watched.all()));
            known_to.send_if_modified(|before| {
                *before != now && {
                    before.clone_from(&now);
                    true
                }
            });
        }
    };
    let both = async {
        tokio::select! {
            never = run => never,
            never = read => never,
        }
    };
    (known, both)
}

fn facts(node: &Node) -> NodeFacts {
    let label = |name: &str| {
        let labels = node.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(name)).filter(|value| !value.is_empty()).cloned()
    };
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let mut internal = addresses.filter(|address| address.type_ == "InternalIP");
    let ip = internal.next().map(|address| address.address.clone());
    NodeFacts { ip, zone: label(ZONE), instance_type: label(INSTANCE_TYPE) }
}
