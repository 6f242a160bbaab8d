//! What of the process needs a Kubernetes API server, and the tasks that follow it.
//!
//! Credentials must be there at the start; the API server itself may come up later.

use anyhow::Context;

use crate::{
    config::{Config, Discovery, WorkerSetConfig},
    discovery::{
        FleetWriter,
        kubernetes::{
            Addresses, Cluster, Configured, Named, Resources, follow_pool, follow_service, watch_nodes,
        },
    },
    kubernetes::{self, Client, Release, StatusDesk, Watches},
    observe::Metrics,
};

use super::{
    App,
    tasks::{Tasks, never},
};

/// A client of the API server, and every watch.
#[derive(Clone)]
pub(super) struct Kubernetes {
    pub client: Client,
    pub watches: Watches,
}

impl Kubernetes {
    /// `None` where nothing needs one.
    ///
    /// # Errors
    /// Something does, and there are no credentials.
    pub(super) async fn build(config: &Config, metrics: &Metrics) -> anyhow::Result<Option<Self>> {
        let Some(why) = needed_for(config) else { return Ok(None) };
        let client = kubernetes::connect().await.context(why)?;
        Ok(Some(Self { client, watches: Watches::new(metrics) }))
    }
}

/// What needs an API server, in the words of the configuration.
fn needed_for(config: &Config) -> Option<String> {
    let enabled = [
        ("token_review", config.token_review.enabled),
        ("kubernetes", config.kubernetes.enabled),
        ("leader_election", config.leader_election.enabled),
        ("policy", config.watches_policies()),
    ];
    let section = enabled.iter().find(|(_, enabled)| *enabled);
    let set = || config.workersets.iter().find(|set| !matches!(set.discovery, Discovery::Static { .. }));
    section
        .map(|(section, _)| format!("`{section}.enabled` is true"))
        .or_else(|| set().map(|set| format!("worker set `{}` is discovered through Kubernetes", set.name)))
}

impl App {
    /// Contends for leadership and writes statuses, where there is something to write or an election is asked for.
    pub(super) fn spawn_statuses(&self, tasks: &mut Tasks) -> Option<(StatusDesk, Release)> {
        let election = &self.config.leader_election;
        if !self.config.kubernetes.enabled && !self.config.watches_policies() && !election.enabled {
            return None;
        }
        let Kubernetes { client, .. } = self.kubernetes.clone()?;
        let identity = self.replica.to_string();
        let (leadership, electing, release) =
            kubernetes::elect(client.clone(), election, identity, &self.metrics);
        let (desk, writing) = StatusDesk::new(client, leadership, &self.metrics);
        tasks.spawn(async move { ("leader election", never(electing.await)) });
        tasks.spawn(async move { ("statuses", never(writing.await)) });
        Some((desk, release))
    }

    /// Follows what the API server says of workers.
    pub(super) fn spawn_cluster(
        &self,
        (writer, desk): (&FleetWriter, Option<StatusDesk>),
        tasks: &mut Tasks,
    ) -> anyhow::Result<()> {
        let Some(Kubernetes { client, watches }) = self.kubernetes.clone() else { return Ok(()) };
        let discovered = |set: &&WorkerSetConfig| !matches!(set.discovery, Discovery::Static { .. });
        let sets: Vec<_> = self.config.workersets.iter().filter(discovered).collect();
        if sets.is_empty() && !self.config.kubernetes.enabled {
            return Ok(());
        }
        let (nodes, following) = watch_nodes(client.clone(), &watches);
        tasks.spawn(async move { ("nodes", never(following.await)) });
        let addresses = Addresses::for_listener(self.config.listen);
        let cluster = Cluster { client, watches, fleet: writer.clone(), nodes, addresses };
        for set in sets {
            self.spawn_set(set, cluster.clone(), tasks)?;
        }
        if let Some(desk) = desk.filter(|_| self.config.kubernetes.enabled) {
            self.spawn_resources((cluster, desk), tasks);
        }
        Ok(())
    }

    fn spawn_set(&self, set: &WorkerSetConfig, cluster: Cluster, tasks: &mut Tasks) -> anyhow::Result<()> {
        let own = kubernetes::own_namespace(&cluster.client);
        let named = |name: &str, namespace: &Option<String>| Named {
            namespace: namespace.clone().unwrap_or(own),
            name: name.to_owned(),
        };
        let fleet_set = self.worker_set(set)?;
        match &set.discovery {
            Discovery::Static { .. } => {}
            Discovery::Kubernetes { service_name, namespace, defaults } => {
                let service = (named(service_name, namespace), *defaults);
                let task = follow_service(cluster, fleet_set, service);
                tasks.spawn(async move { ("discovery through a Service", never(task.await)) });
            }
            Discovery::InferencePool { pool_name, namespace, defaults } => {
                let task = follow_pool(cluster, fleet_set, (named(pool_name, namespace), *defaults));
                tasks.spawn(async move { ("discovery through an InferencePool", never(task.await)) });
            }
        }
        Ok(())
    }

    fn spawn_resources(&self, (cluster, desk): (Cluster, StatusDesk), tasks: &mut Tasks) {
        let config = self.config.kubernetes.clone();
        let configured = Configured {
            profiles: self.profiles.clone(),
            defaults: config.discovery_defaults,
            workersets: self.config.workersets.iter().map(|set| set.name.clone()).collect(),
        };
        let resources = Resources::new(cluster, self.registry.clone(), (configured, desk));
        tasks.spawn(async move {
            let ended = resources.run(&config).await;
            ("InferenceWorkerSets", ended.context("following a resource"))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(text: &str) -> Option<String> {
        let text = format!("listen = \"127.0.0.1:0\"\n[[profile]]\nname = \"p\"\n{text}");
        needed_for(&Config::parse(&text, std::path::Path::new("/")).unwrap().0)
    }

    #[test]
    fn a_client_is_made_for_what_needs_one() {
        let set = |discovery: &str| {
            format!(
                "[[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = 16\n[workerset.discovery]\n{discovery}\n"
            )
        };
        let listed = set("workers_file = \"w\"");
        assert_eq!(needed(&listed), None);
        for section in ["token_review", "kubernetes", "leader_election", "policy"] {
            let why = needed(&format!("{listed}[{section}]\nenabled = true")).unwrap();
            assert_eq!(why, format!("`{section}.enabled` is true"));
        }
        let policies = format!("{listed}[policy]\nenabled = true\nfiles = [\"x\"]\n");
        assert_eq!(needed(&policies), None, "files are enough");
        for discovery in
            ["mode = \"kubernetes\"\nservice_name = \"x\"", "mode = \"inference_pool\"\npool_name = \"x\""]
        {
            assert!(needed(&set(discovery)).unwrap().contains("worker set `s`"));
        }
    }
}
