//! Policies: from files and from the cluster into the pipeline.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Context;

use crate::{
    enforce::{self, Declarations, Enforcer, Realm},
    files,
    kubernetes::{self, PolicyKinds, StatusDesk, watch_policy},
    pipeline::Pipeline,
    policy::{Notices, Secrets},
};

use super::{
    App,
    kubernetes::Kubernetes,
    tasks::{Tasks, never},
};

/// What others ask of the policies in force.
#[derive(Clone, Default)]
pub(super) struct Policies {
    /// All that is declared has been known.
    pub known: Arc<AtomicBool>,
    /// A pool has a provider that requests can be sent to.
    pub reach_providers: Arc<AtomicBool>,
    /// Where everything stands that is declared.
    pub notices: Notices,
}

impl App {
    /// Puts policies in force and keeps them so, where they are to decide.
    ///
    /// # Errors
    /// Files that can't be used.
    pub(super) async fn spawn_policies(
        &self,
        (desk, pipeline): (Option<StatusDesk>, &Pipeline),
        tasks: &mut Tasks,
    ) -> anyhow::Result<Policies> {
        let config = &self.config;
        if !config.policy.enabled {
            return Ok(Policies { known: Arc::new(true.into()), ..Policies::default() });
        }
        let loaded = Declarations::load(config, &self.metrics).await;
        let (declarations, files) = loaded.context("the policy files can't be used")?;
        if !config.policy.files.is_empty() {
            tasks.spawn(async move { ("policy files", never(files::follow(files).await)) });
        }
        let cluster =
            desk.filter(|_| config.watches_policies()).and_then(|desk| self.watch_policy(desk, tasks));
        let realm = Realm {
            registry: self.registry.clone(),
            secrets: pipeline.secrets().clone(),
            providers: self.load.providers().clone(),
            to: pipeline.policies().clone(),
        };
        let enforcer = Enforcer::new(declarations, cluster, realm);
        let policies = Policies {
            known: enforcer.known(),
            reach_providers: enforcer.reaches_providers(),
            notices: enforcer.notices(),
        };
        tasks.spawn(async move { ("policies", never(enforcer.run().await)) });
        self.spawn_secrets(pipeline.secrets().clone(), tasks);
        Ok(policies)
    }

    /// Keeps the credentials of providers as they are where they are kept: in files if so configured, else in the cluster.
    fn spawn_secrets(&self, secrets: Secrets, tasks: &mut Tasks) {
        let policy = self.config.policy.clone();
        match self.kubernetes.clone().filter(|_| self.config.watches_secrets()) {
            Some(Kubernetes { client, watches }) => {
                let follow = kubernetes::follow_secrets(client, watches, secrets);
                tasks.spawn(async move { ("Secrets of providers", never(follow.await)) });
            }
            None => {
                let follow = enforce::follow_secrets(policy, secrets);
                tasks.spawn(async move { ("credentials of providers", never(follow.await)) });
            }
        }
    }

    fn watch_policy(&self, desk: StatusDesk, tasks: &mut Tasks) -> Option<PolicyKinds> {
        let Kubernetes { client, watches } = self.kubernetes.clone()?;
        let (kinds, following) = watch_policy(client, &self.config.policy, (watches, desk));
        tasks.spawn(async move { ("watches of policies", never(following.await)) });
        Some(kinds)
    }
}
