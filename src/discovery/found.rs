//! An engine that was found, before it has a number and a name in the fleet.

use std::sync::Arc;

use super::identity::{Claim, Identity};
use crate::{
    config::Topology,
    fleet::{Availability, KvSource, Worker, WorkerSet},
};

/// An engine of a worker set that is discovered rather than listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// Who it is: unlike any other's of its worker set, and another's once it is another engine.
    pub key: String,
    /// What it should be called.
    pub name: String,
    /// The model of its configuration; empty: as it says.
    pub model_name: Arc<str>,
    /// Where it tells of its KV cache.
    pub kv: KvSource,
    /// `/metrics`
    pub metrics_url: String,
    /// HTTP base.
    pub http_url: String,
    /// `ip:port` for the proxy.
    pub endpoint: String,
    /// Where it runs.
    pub topology: Topology,
    /// Whether it takes requests.
    pub availability: Availability,
}

impl Found {
    /// What it brings to be told apart.
    pub fn claim(&self) -> Claim<'_> {
        Claim { key: &self.key, name: &self.name, namespace: self.topology.namespace.as_deref() }
    }

    /// As a worker of `set`.
    pub fn worker(&self, set: &Arc<WorkerSet>, identity: &Identity) -> Worker {
        Worker {
            id: identity.id,
            name: identity.name.clone(),
            set: set.clone(),
            model_name: self.model_name.clone(),
            kv: self.kv.clone(),
            metrics_url: Some(self.metrics_url.clone()),
            http_url: Some(self.http_url.clone()),
            endpoint: self.endpoint.as_str().into(),
            topology: self.topology.clone(),
            availability: self.availability,
        }
    }
}
