//! The fleet as Envoy's clusters: one assignment for each worker set, its live workers grouped by zone.
//!
//! Invariant: an assignment's version is a hash of its content, so that it is the same after a restart and on every replica.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use envoy_types::pb::{
    envoy::config::{
        core::v3::{Address, HealthStatus, Locality, SocketAddress, address, socket_address::PortSpecifier},
        endpoint::v3::{
            ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint::HostIdentifier,
        },
    },
    google::protobuf::{Any, UInt32Value},
};
use prost::{Message, Name};
use xxhash_rust::xxh3::xxh3_64;

use crate::fleet::{Availability, Described, Member, Snapshot};

/// The only type of resource here.
pub fn type_url() -> String {
    ClusterLoadAssignment::type_url()
}

/// The cluster of a worker set.
pub fn cluster_name(workerset: &str) -> String {
    format!("kinference/{workerset}")
}

/// One cluster's assignment.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Hash of the content.
    pub version: Arc<str>,
    /// The assignment, encoded.
    pub body: Any,
}

/// All clusters by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// Those of worker sets that discovery has described.
    pub clusters: BTreeMap<String, Resource>,
    /// Those of worker sets that are not described yet: nothing is said of them.
    pub pending: BTreeSet<String>,
    /// There may be more of those than are known.
    pub more: bool,
}

impl View {
    /// What the fleet is, as far as discovery has described it.
    pub fn of(fleet: &Snapshot, described: &Described) -> Self {
        let mut sets: BTreeMap<&str, Vec<&Member>> =
            described.sets.iter().map(|set| (&**set, Vec::new())).collect();
        for member in fleet.values() {
            sets.entry(&member.worker.set.name).or_default().push(member);
        }
        let pending = described.awaited.iter().filter(|set| !sets.contains_key(&***set));
        Self {
            pending: pending.map(|set| cluster_name(set)).collect(),
            more: described.more,
            clusters: sets
                .into_iter()
                .map(|(set, members)| (cluster_name(set), Resource::of(assignment(set, &members))))
                .collect(),
        }
    }
}

impl View {
    /// Whether it is not known yet what becomes of a cluster.
    pub fn is_pending(&self, cluster: &str) -> bool {
        !self.clusters.contains_key(cluster) && (self.more || self.pending.contains(cluster))
    }
}

impl Resource {
    fn of(assignment: ClusterLoadAssignment) -> Self {
        let value = assignment.encode_to_vec();
        let version = format!("{:016x}", xxh3_64(&value)).into();
        Self { version, body: Any { type_url: type_url(), value } }
    }

    /// The assignment without endpoints of a cluster that is not known.
    pub fn empty(cluster_name: &str) -> Self {
        Self::of(ClusterLoadAssignment { cluster_name: cluster_name.into(), ..Default::default() })
    }
}

/// The address that Envoy can connect to, of a worker that has one: it takes no host names here.
pub fn socket(member: &Member) -> Option<SocketAddr> {
    member.worker.endpoint.parse().ok()
}

fn assignment(set: &str, members: &[&Member]) -> ClusterLoadAssignment {
    // Workers that share an address are one endpoint, which is well while one of them is.
    let mut zones: BTreeMap<&str, BTreeMap<SocketAddr, bool>> = BTreeMap::new();
    for member in members.iter().filter(|member| {
        member.worker.availability != Availability::Terminating && !member.status.is_evicted()
    }) {
        let Some(address) = socket(member) else { continue };
        let zone = member.worker.topology.availability_zone.as_deref().unwrap_or_default();
        *zones.entry(zone).or_default().entry(address).or_default() |= member.unavailable().is_none();
    }
    let endpoints = zones.into_iter().map(|(zone, endpoints)| locality(zone, endpoints)).collect();
    ClusterLoadAssignment { cluster_name: cluster_name(set), endpoints, ..Default::default() }
}

fn locality(zone: &str, endpoints: BTreeMap<SocketAddr, bool>) -> LocalityLbEndpoints {
    let locality = (!zone.is_empty()).then(|| Locality { zone: zone.into(), ..Default::default() });
    LocalityLbEndpoints {
        locality,
        // By its size: for clusters that weigh localities.
        load_balancing_weight: u32::try_from(endpoints.len()).ok().map(|value| UInt32Value { value }),
        lb_endpoints: endpoints.into_iter().map(|(address, well)| endpoint(address, well)).collect(),
        ..Default::default()
    }
}

/// One that is not well gets nothing from Envoy's own balancing; a pick that names it is still honoured.
fn endpoint(address: SocketAddr, well: bool) -> LbEndpoint {
    let health = if well { HealthStatus::Healthy } else { HealthStatus::Unhealthy };
    let socket = SocketAddress {
        address: address.ip().to_string(),
        port_specifier: Some(PortSpecifier::PortValue(address.port().into())),
        ..Default::default()
    };
    let address = Address { address: Some(address::Address::SocketAddress(socket)) };
    LbEndpoint {
        health_status: health.into(),
        host_identifier: Some(HostIdentifier::Endpoint(Endpoint {
            address: Some(address),
            ..Default::default()
        })),
        ..Default::default()
    }
}
