//! EndpointSlices of one Service -> places. Pure.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use k8s_openapi::api::{
    core::v1::ObjectReference,
    discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice},
};

use super::{
    address::Addresses,
    places::{Gathering, Place, Places},
};
use crate::{config::Topology, fleet::Availability};

/// The label by which slices name their Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The places that all slices of a Service list together.
pub fn places(slices: &[Arc<EndpointSlice>], addresses: Addresses) -> Places {
    let mut gathering = Gathering::default();
    for slice in slices.iter().filter(|slice| slice.address_type != "FQDN") {
        let ports = named_ports(slice.ports.as_deref().unwrap_or_default());
        for endpoint in &slice.endpoints {
            // The addresses of an endpoint are all of one pod: the first stands for it.
            let Some(text) = endpoint.addresses.first() else { continue };
            match addresses.read(text) {
                Ok(address) => gathering.add(place(slice, endpoint, (address, &ports))),
                Err(why) => gathering.refuse(|| format!("{}: {why}", shown(text))),
            }
        }
    }
    gathering.done()
}

fn place(
    slice: &EndpointSlice,
    endpoint: &Endpoint,
    (address, ports): (IpAddr, &BTreeMap<String, u16>),
) -> Place {
    let namespace = slice.metadata.namespace.clone().unwrap_or_default();
    let pod = endpoint.target_ref.as_ref().filter(|target| target.kind.as_deref() == Some("Pod"));
    let (key, name) = identity(pod).unwrap_or_else(|| {
        let labels = slice.metadata.labels.as_ref();
        let service = labels.and_then(|labels| labels.get(SERVICE_LABEL)).map_or("", String::as_str);
        (format!("{namespace}/{service}/{address}"), address.to_string())
    });
    let topology = Topology {
        pod_name: pod.and_then(|pod| pod.name.clone()),
        namespace: Some(namespace),
        node_name: endpoint.node_name.clone(),
        pod_ip: Some(address.to_string()),
        availability_zone: endpoint.zone.clone().filter(|zone| !zone.is_empty()),
        ..Topology::default()
    };
    Place {
        key: key.into(),
        name,
        address,
        availability: availability(endpoint.conditions.as_ref()),
        ports: ports.clone(),
        topology,
    }
}

fn identity(pod: Option<&ObjectReference>) -> Option<(String, String)> {
    let pod = pod?;
    let uid = pod.uid.as_ref().filter(|uid| !uid.is_empty())?;
    let name = pod.name.as_ref().filter(|name| !name.is_empty())?;
    Some((uid.clone(), name.clone()))
}

/// What is not said counts as well: so the API has it. One that is shutting down may still serve, but takes nothing new.
fn availability(conditions: Option<&EndpointConditions>) -> Availability {
    let Some(conditions) = conditions else { return Availability::Ready };
    if conditions.terminating == Some(true) {
        return Availability::Terminating;
    }
    match conditions.ready.or(conditions.serving) {
        Some(false) => Availability::NotReady,
        _ => Availability::Ready,
    }
}

fn named_ports(ports: &[EndpointPort]) -> BTreeMap<String, u16> {
    let tcp = ports.iter().filter(|port| port.protocol.as_deref().unwrap_or("TCP") == "TCP");
    tcp.filter_map(|port| Some((port.name.clone()?, port_number(port.port?)?))).collect()
}

/// A port that something can listen on.
pub fn port_number(port: i32) -> Option<u16> {
    u16::try_from(port).ok().filter(|port| *port > 0)
}

/// Text of somebody else, for a log or a condition.
pub fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(64).flat_map(char::escape_debug).collect();
    if text.chars().nth(64).is_some() {
        shown.push_str("...");
    }
    shown
}
