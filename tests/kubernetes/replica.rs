//! A replica as far as the `kubernetes` room goes: it contends for the Lease and writes statuses, over a link of its own.

use std::{convert::Infallible, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kinference::{
    config::LeaderElectionConfig,
    kubernetes::{Leadership, Release, StatusDesk, elect},
    observe::Metrics,
};
use kube::{Api, Client, api::PostParams};
use serde_json::json;
use tokio::task::JoinSet;

use crate::{apiserver::ApiServer, cluster, eventually, proxy::Proxy};

pub const DURATION: Duration = Duration::from_secs(3);
pub const RETRY: Duration = Duration::from_millis(300);

fn config(namespace: &str) -> LeaderElectionConfig {
    LeaderElectionConfig {
        enabled: true,
        namespace: Some(namespace.into()),
        lease_duration: DURATION,
        renew_grace: Duration::from_secs(2),
        retry: RETRY,
        ..LeaderElectionConfig::default()
    }
}

pub struct Replica {
    pub name: String,
    pub proxy: Proxy,
    pub leadership: Leadership,
    pub release: Release,
    pub desk: StatusDesk,
    pub metrics: Metrics,
    pub tasks: JoinSet<Infallible>,
}

impl Replica {
    pub async fn start(cluster: &ApiServer, namespace: &str, name: &str) -> Self {
        let (client, proxy) = cluster::proxied(cluster).await;
        let metrics = Metrics::new();
        let (leadership, contend, release) = elect(client.clone(), &config(namespace), name.into(), &metrics);
        let (desk, write) = StatusDesk::new(client, leadership.clone(), &metrics);
        let mut tasks = JoinSet::new();
        tasks.spawn(contend);
        tasks.spawn(write);
        Self { name: name.into(), proxy, leadership, release, desk, metrics, tasks }
    }

    /// As a process that is killed.
    pub async fn crash(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Who leads; that there are not two is asserted at every look.
pub fn leader(replicas: &[Replica]) -> Option<usize> {
    let leaders: Vec<_> = (0..replicas.len()).filter(|at| replicas[*at].leadership.leads()).collect();
    assert!(leaders.len() <= 1, "{leaders:?} lead at once");
    leaders.first().copied()
}

pub async fn next_leader(replicas: &[Replica]) -> usize {
    eventually("one leads", async || leader(replicas)).await
}

/// A Lease that is free, as after a holder that gave it up: made beforehand, so that nobody need wait for a holder that may be.
pub async fn free_lease(client: &Client, namespace: &str) -> Api<Lease> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let lease = serde_json::from_value(json!({"metadata": {"name": "bllmp", "labels": {"kept": "yes"}},
            "spec": {"renewTime": "2026-01-02T03:04:05.000006Z"}}))
    .unwrap();
    leases.create(&PostParams::default(), &lease).await.unwrap();
    leases
}

pub async fn three(cluster: &ApiServer, namespace: &str) -> Vec<Replica> {
    let mut replicas = Vec::new();
    for name in ["a", "b", "c"] {
        replicas.push(Replica::start(cluster, namespace, name).await);
    }
    replicas
}
