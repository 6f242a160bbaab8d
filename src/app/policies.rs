//! Policies: from files and from the cluster into the pipeline.

use std::sync::{Arc, atomic::AtomicBool};

use anyhow::Context;

use crate::{
    enforce::{Declarations, Enforcer},
    files,
    kubernetes::{PolicyKinds, StatusDesk, watch_policy},
    pipeline::PoliciesInForce,
};

use super::{
    App,
    kubernetes::Kubernetes,
    tasks::{Tasks, never},
};

impl App {
    /// Puts policies in force and keeps them so, where they are to decide; tells whether they are known.
    ///
    /// # Errors
    /// Files that can't be used.
    pub(super) async fn spawn_policies(
        &self,
        (desk, to): (Option<StatusDesk>, PoliciesInForce),
        tasks: &mut Tasks,
    ) -> anyhow::Result<Arc<AtomicBool>> {
        let config = &self.config;
        if !config.policy.enabled {
            return Ok(Arc::new(AtomicBool::new(true)));
        }
        let loaded = Declarations::load(config, &self.metrics).await;
        let (declarations, files) = loaded.context("the policy files can't be used")?;
        if !config.policy.files.is_empty() {
            tasks.spawn(async move { ("policy files", never(files::follow(files).await)) });
        }
        let cluster =
            desk.filter(|_| config.watches_policies()).and_then(|desk| self.watch_policy(desk, tasks));
        let enforcer = Enforcer::new(declarations, cluster, (self.registry.clone(), to));
        let known = enforcer.known();
        tasks.spawn(async move { ("policies", never(enforcer.run().await)) });
        Ok(known)
    }

    fn watch_policy(&self, desk: StatusDesk, tasks: &mut Tasks) -> Option<PolicyKinds> {
        let Kubernetes { client, watches } = self.kubernetes.clone()?;
        let (kinds, following) = watch_policy(client, &self.config.policy, (watches, desk));
        tasks.spawn(async move { ("watches of policies", never(following.await)) });
        Some(kinds)
    }
}
