//! Puts policies in force: those of files, those of a cluster, or both together.
//!
//! Invariant: the pipeline always has whole policies, made from everything that is declared; none before all of it is
//! known, because a pool without its rules could send a request where it must not go.

mod check;
mod files;
mod instruments;
mod news;
mod secrets;

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

pub use check::check;
pub use files::{FileErrors, PolicyFiles};
pub use secrets::follow_secrets;

use self::{
    files::AllDeclared,
    instruments::Instruments,
    news::{News, name_places},
};
use crate::{
    config::Config,
    fleet::Registry,
    kubernetes::PolicyKinds,
    load::Providers,
    observe::Metrics,
    pipeline::PoliciesInForce,
    policy::{InForce, Known, Notices, Secrets, Standing, compile::Policies},
};

/// What there is besides policies, and where they go.
#[derive(Clone)]
pub struct Realm {
    /// The fleet, whose worker sets policies name.
    pub registry: Arc<Registry>,
    /// The credentials that providers want.
    pub secrets: Secrets,
    /// What is known of providers: only of those that policies name.
    pub providers: Arc<Providers>,
    /// What decides.
    pub to: PoliciesInForce,
}

/// Keeps the policies of a pipeline as they are declared.
pub struct Enforcer {
    realm: Realm,
    files: watch::Receiver<AllDeclared>,
    secrets: watch::Receiver<Arc<Known>>,
    cluster: Option<PolicyKinds>,
    in_force: InForce,
    /// What the policies in force were made from.
    made_from: Option<Sources>,
    policies: Arc<Policies>,
    known: Arc<AtomicBool>,
    reaches_providers: Arc<AtomicBool>,
    /// Where resources stand but for credentials.
    sound: Vec<Standing>,
    notices: Notices,
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
    notices: Notices,
    instruments: Instruments,
}

impl Declarations {
    /// Reads the files that `config` names; they are to be followed.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub async fn load(config: &Config, metrics: &Metrics) -> Result<(Self, PolicyFiles), FileErrors> {
        let instruments = Instruments::new(metrics);
        let notices = Notices::default();
        let (followed, files) = PolicyFiles::load(config, (notices.clone(), instruments.clone())).await?;
        Ok((Self { files, notices, instruments }, followed))
    }
}

impl Enforcer {
    /// Puts in force what is known now.
    pub fn new(declarations: Declarations, cluster: Option<PolicyKinds>, realm: Realm) -> Self {
        let Declarations { files, notices, instruments } = declarations;
        // Nothing yet, which is not the same as no policies: a pool that is named is not there.
        realm.to.store(Some(Arc::default()));
        let mut enforcer = Self {
            secrets: realm.secrets.changes(),
            realm,
            files,
            cluster,
            in_force: InForce::default(),
            made_from: None,
            policies: Arc::default(),
            known: Arc::default(),
            reaches_providers: Arc::default(),
            sound: Vec::new(),
            notices,
            news: News::default(),
            instruments,
        };
        enforcer.look();
        enforcer
    }

    /// Whether all that is declared has been known: before, no pool is there.
    pub fn known(&self) -> Arc<AtomicBool> {
        self.known.clone()
    }

    /// Whether a pool has a provider that requests can be sent to, as far as its credential goes.
    pub fn reaches_providers(&self) -> Arc<AtomicBool> {
        self.reaches_providers.clone()
    }

    /// Where everything stands, now and later.
    pub fn notices(&self) -> Notices {
        self.notices.clone()
    }

    /// Follows every change, for ever.
    pub async fn run(mut self) -> Infallible {
        let mut fleet = self.realm.registry.watch();
        loop {
            self.look();
            tokio::select! {
                () = next(&mut fleet) => {}
                () = next(&mut self.files) => {}
                () = next(&mut self.secrets) => {}
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
        let new = self.made_from.as_ref() != Some(&sources);
        if new {
            self.apply(&sources);
            self.made_from = Some(sources);
        }
        self.stand(new, of_files);
        if let Some(cluster) = &mut self.cluster {
            cluster.say(self.notices.standings().get(of_files..).unwrap_or_default());
        }
    }

    fn apply(&mut self, sources: &Sources) {
        let of_files = sources.declared.iter().map(|one| &one.value);
        let all = of_files.chain(&sources.objects).cloned();
        let (policies, mut standings) = self.in_force.update(all, sources.worker_sets.as_ref());
        name_places(&mut standings, &sources.declared);
        self.policies = Arc::new(policies);
        self.realm.to.store(Some(self.policies.clone()));
        self.realm.secrets.want(self.policies.secrets().values().cloned().collect());
        let named = self.policies.providers().map(|one| (one.id.clone(), one.upstream.clone()));
        self.realm.providers.keep(&named.collect());
        self.known.store(true, Ordering::Relaxed);
        self.instruments.applied();
        tracing::info!(resources = standings.len(), "policies are in force");
        self.sound = standings;
    }

    /// Says where resources stand, whose credentials may have come since. The first `of_files` are of files.
    fn stand(&mut self, new: bool, of_files: usize) {
        self.secrets.mark_unchanged();
        let secrets = &self.realm.secrets;
        let mut standings = self.sound.clone();
        for standing in standings.iter_mut().filter(|one| one.kind == "InferenceProvider") {
            if let Some(key) = self.policies.secrets().get(&standing.key) {
                standing.look_for(key, secrets);
            }
        }
        let reached = self.policies.providers().any(|provider| provider.target(secrets).is_ok());
        self.reaches_providers.store(reached, Ordering::Relaxed);
        if new || standings != *self.notices.standings() {
            self.instruments.stand(&standings);
            self.news.tell((&standings, of_files), &self.instruments);
            self.notices.stand(standings);
        }
    }

    fn worker_sets(&self) -> Option<BTreeSet<String>> {
        let described = self.realm.registry.described();
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
