//! Pods that a selector selects -> places. Pure.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::{
    address::Addresses,
    places::{Gathering, Place, Places},
    slices::{port_number, shown},
};
use crate::{config::Topology, fleet::Availability};

/// The places of pods that have an address and have not ended.
pub fn places(pods: &[Arc<Pod>], addresses: Addresses) -> Places {
    let mut gathering = Gathering::default();
    for pod in pods {
        let Some(status) = pod.status.as_ref().filter(|status| is_alive(status)) else { continue };
        for text in all_addresses(status) {
            match addresses.read(text) {
                Ok(address) => gathering.add(place(pod, status, address)),
                Err(why) => gathering.refuse(|| format!("{}: {why}", shown(text))),
            }
        }
    }
    gathering.done()
}

fn is_alive(status: &PodStatus) -> bool {
    !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn all_addresses(status: &PodStatus) -> Vec<&str> {
    let listed = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    let mut all: Vec<&str> = listed.filter(|ip| !ip.is_empty()).collect();
    if all.is_empty() {
        all.extend(status.pod_ip.as_deref().filter(|ip| !ip.is_empty()));
    }
    all
}

fn place(pod: &Pod, status: &PodStatus, address: IpAddr) -> Place {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let topology = Topology {
        pod_name: Some(name.clone()),
        namespace: pod.metadata.namespace.clone(),
        node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
        pod_ip: Some(address.to_string()),
        ..Topology::default()
    };
    Place {
        key: pod.metadata.uid.as_deref().unwrap_or(&name).into(),
        name,
        address,
        availability: availability(pod, status),
        ports: named_ports(pod),
        topology,
    }
}

fn availability(pod: &Pod, status: &PodStatus) -> Availability {
    if pod.metadata.deletion_timestamp.is_some() {
        return Availability::Terminating;
    }
    let ready = status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True");
    if ready { Availability::Ready } else { Availability::NotReady }
}

fn named_ports(pod: &Pod) -> BTreeMap<String, u16> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let tcp = ports.filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    tcp.filter_map(|port| Some((port.name.clone()?, port_number(port.container_port)?))).collect()
}
