//! Follows InferenceWorkerSets: a worker set for each that is in force, and a word on each on how it stands.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use kube::Api;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinError, JoinSet},
    time::sleep,
};

use super::{
    follow::{Cluster, Following, news},
    plan::{Key, Planned, key_text, plan},
    serving::Serving,
    spec::{Configured, SetSpec},
    standing::{Seen, standing},
};
use crate::{
    config::KubernetesConfig,
    fleet::Registry,
    kubernetes::{Selector, StatusDesk, Watched},
    policy::crd::InferenceWorkerSet,
};

/// How often it is looked whether workers take requests: nobody tells when one begins to fail.
const LOOK: Duration = Duration::from_secs(1);

/// What resources are sought for: no name of a worker set.
const OF_ALL: &str = "";

/// Worker sets from resources.
pub struct Resources {
    cluster: Cluster,
    registry: Arc<Registry>,
    configured: Configured,
    desk: StatusDesk,
    planned: BTreeMap<Key, Planned>,
    running: BTreeMap<Key, Running>,
    tasks: JoinSet<Infallible>,
}

/// The task of one resource, and what it is told.
struct Running {
    planned: watch::Sender<Planned>,
    spec: watch::Sender<Option<SetSpec>>,
    task: AbortHandle,
}

impl Resources {
    /// None yet. Until they have been listed, it is not known which worker sets there are.
    pub fn new(
        cluster: Cluster,
        registry: Arc<Registry>,
        (configured, desk): (Configured, StatusDesk),
    ) -> Self {
        registry.await_more(true);
        let (planned, running, tasks) = (BTreeMap::new(), BTreeMap::new(), JoinSet::new());
        Self { cluster, registry, configured, desk, planned, running, tasks }
    }

    /// Follows those that `config` selects, for ever.
    ///
    /// # Errors
    /// The task of a resource panicked.
    pub async fn run(mut self, config: &KubernetesConfig) -> Result<Infallible, JoinError> {
        let client = self.cluster.client.clone();
        let api: Api<InferenceWorkerSet> = match &config.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        let selector = Selector { labels: config.selector.clone(), fields: None };
        let what = selected(config);
        tracing::info!("following {what}");
        self.registry.seek(OF_ALL, what.clone());
        let mut there = None;
        let (mut watched, run) = self.cluster.watches.start(api, selector);
        tokio::pin!(run);
        loop {
            self.look(&watched).await?;
            if watched.is_synced() {
                count(&what, self.planned.len(), &mut there);
            }
            tokio::select! {
                never = &mut run => match never {},
                () = watched.changed() => {}
                Some(ended) = self.tasks.join_next() => unless_panicked(ended)?,
            }
        }
    }

    async fn look(&mut self, watched: &Watched<InferenceWorkerSet>) -> Result<(), JoinError> {
        if !watched.is_synced() {
            return Ok(());
        }
        let now = plan(&watched.all(), &self.configured, &self.planned);
        let before = std::mem::take(&mut self.planned);
        // First who goes, then who comes: a name may pass from one to the other.
        for (key, old) in &before {
            let new = now.get(key);
            if new.is_none_or(|new| new.in_force.is_none() && old.in_force.is_some()) {
                self.end(key, old).await?;
            }
            if new.is_none() {
                self.desk.forget(&*old.resource);
            }
        }
        for (key, new) in &now {
            let known = before.get(key);
            if known != Some(new) {
                tell(new, known);
                self.apply(key, new);
            }
        }
        self.planned = now;
        self.registry.await_more(false);
        Ok(())
    }

    fn apply(&mut self, key: &Key, planned: &Planned) {
        if let Some(spec) = &planned.in_force {
            self.registry.await_set(&spec.set.name);
        }
        let running = self.running.entry(key.clone()).or_insert_with(|| {
            let (spec_to, spec) = watch::channel(None);
            let (planned_to, planned) = watch::channel(planned.clone());
            let (seen_to, seen) = watch::channel(Seen::default());
            let following = Following::new(self.cluster.clone(), spec, seen_to);
            let speaking = speak(self.desk.clone(), self.registry.clone(), (planned, seen));
            let task = self.tasks.spawn(async {
                tokio::select! {
                    never = following.run() => never,
                    never = speaking => never,
                }
            });
            Running { planned: planned_to, spec: spec_to, task }
        });
        let spec = &planned.in_force;
        running.spec.send_if_modified(|before| {
            before != spec && {
                before.clone_from(spec);
                true
            }
        });
        running.planned.send_replace(planned.clone());
    }

    /// Ends the task of a resource, then its worker set: an aborted task runs on to its next await.
    async fn end(&mut self, key: &Key, planned: &Planned) -> Result<(), JoinError> {
        let Some(running) = self.running.remove(key) else { return Ok(()) };
        running.task.abort();
        while !running.task.is_finished() {
            let Some(ended) = self.tasks.join_next().await else { break };
            unless_panicked(ended)?;
        }
        if let Some(spec) = &planned.in_force {
            self.cluster.fleet.remove(&spec.set.name);
        }
        Ok(())
    }
}

/// Which resources are followed, in words.
fn selected(config: &KubernetesConfig) -> String {
    let namespace = config.namespace.as_ref().map(|namespace| format!("namespace `{namespace}`"));
    let selector = config.selector.as_ref().map(|selector| format!(" with labels `{selector}`"));
    let namespace = namespace.unwrap_or_else(|| "all namespaces".to_owned());
    format!("InferenceWorkerSets in {namespace}{}", selector.unwrap_or_default())
}

/// One line when it is known whether there are any, and whenever that changes.
fn count(what: &str, count: usize, there: &mut Option<bool>) {
    let now = Some(count > 0);
    if std::mem::replace(there, now) != now {
        match count {
            0 => tracing::warn!("there are no {what}"),
            _ => tracing::info!(count, "found {what}"),
        }
    }
}

/// Says how a resource stands, at first and at every change.
async fn speak(
    desk: StatusDesk,
    registry: Arc<Registry>,
    (mut planned, mut seen): (watch::Receiver<Planned>, watch::Receiver<Seen>),
) -> Infallible {
    let mut fleet = registry.watch();
    let mut said = None;
    loop {
        {
            let (planned, seen) = (planned.borrow_and_update(), seen.borrow_and_update());
            fleet.mark_unchanged();
            let in_force = planned.in_force.as_ref();
            let serving = in_force.map(|spec| Serving::of(&registry, &spec.set.name)).unwrap_or_default();
            let now = (planned.clone(), standing(&planned, &seen, &serving));
            if said.as_ref() != Some(&now) {
                desk.say(&*now.0.resource, now.1.clone());
                said = Some(now);
            }
        }
        tokio::select! {
            () = news(&mut planned) => {}
            () = news(&mut seen) => {}
            () = news(&mut fleet) => {}
            () = sleep(LOOK) => {}
        }
    }
}

/// One line when a resource begins to be refused, for another reason, or is accepted again.
fn tell(planned: &Planned, before: Option<&Planned>) {
    let refused = before.and_then(|before| before.refusal.as_ref());
    let resource = key_text(&planned.key());
    match &planned.refusal {
        Some(refusal) if Some(refusal) != refused => {
            let (reason, why) = (refusal.reason.as_str(), &refusal.message);
            let in_force = planned.in_force.is_some();
            tracing::error!(resource, reason, why, in_force, "an InferenceWorkerSet is not accepted");
        }
        None if refused.is_some() => tracing::info!(resource, "the InferenceWorkerSet is accepted again"),
        _ => {}
    }
}

fn unless_panicked(ended: Result<Infallible, JoinError>) -> Result<(), JoinError> {
    match ended {
        Err(error) if error.is_panic() => Err(error),
        Err(_) => Ok(()),
        Ok(never) => match never {},
    }
}
