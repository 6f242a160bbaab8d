//! Puts policies in force: those of files, those of a cluster, or both together.
//!
//! Invariant: the pipeline always has whole policies, made from everything that is declared; none before all of it is
//! known, because a pool without its rules could send a request where it must not go.

mod files;
mod instruments;
mod news;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use tokio::sync::watch;

pub use files::{FileErrors, PolicyFiles, check};

use self::{
    files::AllDeclared,
    instruments::Instruments,
    news::{News, name_places},
};
use crate::{
    config::Config,
    fleet::Registry,
    kubernetes::PolicyKinds,
    observe::Metrics,
    pipeline::PoliciesInForce,
    policy::{InForce, Standing},
};

/// Keeps the policies of a pipeline as they are declared.
pub struct Enforcer {
    /// What is there besides policies: the fleet, whose worker sets they name.
    registry: Arc<Registry>,
    files: watch::Receiver<AllDeclared>,
    cluster: Option<PolicyKinds>,
    to: PoliciesInForce,
    in_force: InForce,
    /// What the policies in force were made from.
    made_from: Option<Sources>,
    known: Arc<AtomicBool>,
    standings: Vec<Standing>,
    news: News,
    instruments: Instruments,
}

/// Everything that policies are made from.
#[derive(PartialEq)]
struct Sources {
    declared: AllDeclared,
    objects: Vec<Value>,
    /// `None`: it is not known yet which exist.
    worker_sets: Option<BTreeSet<String>>,
}

/// The files of the configuration, read, and the metrics of policies.
pub struct Declarations {
    files: watch::Receiver<AllDeclared>,
    instruments: Instruments,
}

impl Declarations {
    /// Reads the files that `config` names; they are to be followed.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub async fn load(config: &Config, metrics: &Metrics) -> Result<(Self, PolicyFiles), FileErrors> {
        let instruments = Instruments::new(metrics);
        let (followed, files) = PolicyFiles::load(config, instruments.clone()).await?;
        Ok((Self { files, instruments }, followed))
    }
}

impl Enforcer {
    /// Puts in force what is known now.
    pub fn new(
        declarations: Declarations,
        cluster: Option<PolicyKinds>,
        (registry, to): (Arc<Registry>, PoliciesInForce),
    ) -> Self {
        let Declarations { files, instruments } = declarations;
        // Nothing yet, which is not the same as no policies: a pool that is named is not there.
        to.store(Some(Arc::default()));
        let (in_force, news) = (InForce::default(), News::default());
        let (made_from, known, standings) = (None, Arc::default(), Vec::new());
        let mut enforcer =
            Self { registry, files, cluster, to, in_force, made_from, known, standings, news, instruments };
        enforcer.look();
        enforcer
    }

    /// Whether all that is declared has been known: before, no pool is there.
    pub fn known(&self) -> Arc<AtomicBool> {
        self.known.clone()
    }

    /// Follows every change, for ever.
    pub async fn run(mut self) -> Infallible {
        let mut fleet = self.registry.watch();
        loop {
            self.look();
            tokio::select! {
                () = next(&mut fleet) => {}
                () = next(&mut self.files) => {}
                () = of_cluster(&mut self.cluster) => {}
            }
        }
    }

    /// Puts in force what is declared now, and says of each object where it stands.
    fn look(&mut self) {
        if self.cluster.as_ref().is_some_and(|cluster| !cluster.is_synced()) {
            return;
        }
        let declared = self.files.borrow_and_update().clone();
        let sources = Sources {
            declared,
            objects: self.cluster.as_mut().map(PolicyKinds::look).unwrap_or_default(),
            worker_sets: self.worker_sets(),
        };
        let of_files = sources.declared.len();
        if self.made_from.as_ref() != Some(&sources) {
            self.apply(&sources);
            self.made_from = Some(sources);
        }
        if let Some(cluster) = &mut self.cluster {
            cluster.say(self.standings.get(of_files..).unwrap_or_default());
        }
    }

    fn apply(&mut self, sources: &Sources) {
        let of_files = sources.declared.iter().map(|one| &one.value);
        let all = of_files.chain(&sources.objects).cloned();
        let (policies, mut standings) = self.in_force.update(all, sources.worker_sets.as_ref());
        name_places(&mut standings, &sources.declared);
        self.to.store(Some(Arc::new(policies)));
        self.known.store(true, Ordering::Relaxed);
        self.instruments.applied(&standings);
        self.news.tell((&standings, sources.declared.len()), &self.instruments);
        self.standings = standings;
    }

    fn worker_sets(&self) -> Option<BTreeSet<String>> {
        let described = self.registry.described();
        let names = described.sets.iter().chain(&described.awaited);
        (!described.more).then(|| names.map(ToString::to_string).collect())
    }
}

/// Waits for news; for ever where there will be none.
async fn next<T>(source: &mut watch::Receiver<T>) {
    if source.changed().await.is_err() {
        std::future::pending().await
    }
}

async fn of_cluster(cluster: &mut Option<PolicyKinds>) {
    match cluster {
        Some(cluster) => cluster.changed().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
