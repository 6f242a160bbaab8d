//! From resources to [`Policies`]: references followed, names resolved, conditions turned into plain comparisons.
//!
//! Each resource has been read, so that it is sound in itself. What does not fit together is found and said; the rest
//! is in force all the same.

mod lint;
mod pools;
mod rules;
mod text;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kube::ResourceExt;

use super::{
    crd::{InferencePolicy, InferencePool, InferenceProvider},
    eval::{Authorization, Key, Model, Pool, Provider},
    problem::{FieldPath, Problem},
    resource::Resource,
    secrets::SecretKey,
};

/// The namespace of a resource that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Everything that decides over requests. Immutable.
#[derive(Debug, Default)]
pub struct Policies {
    pools: BTreeMap<Key, Arc<Pool>>,
    backends: BTreeMap<Key, Key>,
    secrets: BTreeMap<Key, SecretKey>,
}

/// Something about how resources fit together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Index of the resource that it is about.
    pub resource: usize,
    /// How much it matters.
    pub weight: Weight,
    /// What it is.
    pub problem: Problem,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// It is in force, but hardly does what was meant.
    Suspicious,
    /// Something that it names does not exist; what names it has no effect.
    Unresolved,
    /// It is not in force: another resource has its name.
    Conflict,
}

/// Why there is no pool for a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPool {
    /// None has that name.
    #[error("no InferencePool or GatewayBackend has that name")]
    Unknown,
    /// Several have it.
    #[error("several namespaces have that name; write it as namespace/name")]
    Ambiguous,
}

impl Policies {
    /// The pool that a request names, as `name` or as `namespace/name`: the one of that name, else the one behind the
    /// GatewayBackend of that name.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn pool(&self, name: &str) -> Result<&Arc<Pool>, NoPool> {
        let (namespace, name) =
            name.split_once('/').map_or((None, name), |(space, name)| (Some(space), name));
        let named = |key: &Key| &*key.name == name && namespace.is_none_or(|space| space == &*key.namespace);
        let pools = self.pools.iter().filter(|(key, _)| named(key)).map(|(_, pool)| pool);
        only(pools).or_else(|why| match why {
            NoPool::Unknown => {
                let backends = self.backends.keys().filter(|key| named(key));
                only(backends.filter_map(|backend| self.behind(backend)))
            }
            NoPool::Ambiguous => Err(why),
        })
    }

    /// The pool that a GatewayBackend stands for.
    pub fn behind(&self, backend: &Key) -> Option<&Arc<Pool>> {
        self.pools.get(self.backends.get(backend)?)
    }

    /// Every provider behind a model of a pool, once for each.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        let models = self.pools.values().flat_map(|pool| &pool.models);
        models.flat_map(Model::providers).map(|(_, provider)| provider)
    }

    /// Where the credentials of providers are, by provider.
    pub fn secrets(&self) -> &BTreeMap<Key, SecretKey> {
        &self.secrets
    }

    /// All pools, by namespace and name.
    pub fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.pools.values()
    }
}

fn only<T>(mut found: impl Iterator<Item = T>) -> Result<T, NoPool> {
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(NoPool::Unknown),
        (Some(_), Some(_)) => Err(NoPool::Ambiguous),
    }
}

/// Compiles resources. `worker_sets` are the ones that exist besides those among the resources; `None`: it is not known
/// which exist.
pub fn compile(resources: &[Resource], worker_sets: Option<&BTreeSet<String>>) -> (Policies, Vec<Finding>) {
    let mut compiler = Compiler { worker_sets: worker_sets.cloned(), ..Compiler::default() };
    resources.iter().enumerate().for_each(|(index, resource)| compiler.collect(index, resource));
    let mut out = Policies::default();
    let pools = std::mem::take(&mut compiler.pools);
    for (key, (index, pool)) in &pools {
        let pool = compiler.pool(*index, key, pool);
        out.pools.insert(key.clone(), Arc::new(pool));
    }
    compiler.stray_policies(&pools);
    for (key, (index, pool)) in std::mem::take(&mut compiler.backends) {
        if pools.contains_key(&pool) {
            out.backends.insert(key, pool);
        } else {
            compiler.no_pool(index, &pool);
        }
    }
    let secret = |(key, provider): (&Key, &&InferenceProvider)| {
        let authorization = Authorization::of(&provider.spec, &key.namespace)?;
        Some((key.clone(), authorization.secret))
    };
    out.secrets = compiler.providers.iter().filter_map(secret).collect();
    let mut findings = compiler.findings;
    findings.sort_by(|a, b| (a.resource, &a.problem.path).cmp(&(b.resource, &b.problem.path)));
    (out, findings)
}

#[derive(Default)]
struct Compiler<'a> {
    worker_sets: Option<BTreeSet<String>>,
    providers: BTreeMap<Key, &'a InferenceProvider>,
    pools: BTreeMap<Key, (usize, &'a InferencePool)>,
    policies: BTreeMap<Key, (usize, &'a InferencePolicy)>,
    backends: BTreeMap<Key, (usize, Key)>,
    seen: BTreeSet<Identity>,
    findings: Vec<Finding>,
}

impl<'a> Compiler<'a> {
    fn collect(&mut self, index: usize, resource: &'a Resource) {
        let identity = identity(resource);
        if !self.seen.insert(identity.clone()) {
            self.find(index, Weight::Conflict, taken(&identity));
            return;
        }
        let (_, key) = identity;
        match resource {
            Resource::GatewayBackend(one) => {
                let pool =
                    Key { namespace: key.namespace.clone(), name: one.spec.pool_ref.name.as_str().into() };
                self.backends.insert(key, (index, pool));
            }
            Resource::InferencePolicy(one) => drop(self.policies.insert(key, (index, one))),
            Resource::InferencePool(one) => drop(self.pools.insert(key, (index, one))),
            Resource::InferenceProvider(one) => drop(self.providers.insert(key, one)),
            Resource::InferenceWorkerSet(one) => {
                self.worker_sets.get_or_insert_default().insert(one.name_any());
            }
        }
    }

    fn find(&mut self, resource: usize, weight: Weight, problem: Problem) {
        self.findings.push(Finding { resource, weight, problem });
    }

    fn unresolved(&mut self, resource: usize, path: FieldPath, message: String) {
        self.find(resource, Weight::Unresolved, Problem::new(path, message));
    }

    fn no_pool(&mut self, index: usize, pool: &Key) {
        let message = format!("is {:?}, but {} has no such InferencePool", &*pool.name, pool.namespace);
        self.unresolved(index, FieldPath::of("spec.poolRef.name"), message);
    }

    fn stray_policies(&mut self, pools: &BTreeMap<Key, (usize, &'a InferencePool)>) {
        let of = |(key, (index, policy)): (&Key, &(usize, &InferencePolicy))| {
            let name = policy.spec.pool_ref.name.as_str().into();
            (*index, Key { namespace: key.namespace.clone(), name })
        };
        let stray: Vec<_> =
            self.policies.iter().map(of).filter(|(_, pool)| !pools.contains_key(pool)).collect();
        stray.iter().for_each(|(index, pool)| self.no_pool(*index, pool));
    }
}

/// A kind, and which one of it.
pub(super) type Identity = (&'static str, Key);

/// What is said of a resource whose name is taken.
pub(super) fn taken((kind, key): &Identity) -> Problem {
    let message = format!("is {:?}, as of another {kind} in {}", &*key.name, key.namespace);
    Problem::new(FieldPath::of("metadata.name"), message)
}

fn identity(resource: &Resource) -> Identity {
    let key = |one: &dyn Named| Key { namespace: one.space().into(), name: one.name().into() };
    match resource {
        Resource::GatewayBackend(one) => ("GatewayBackend", key(one)),
        Resource::InferencePolicy(one) => ("InferencePolicy", key(one)),
        Resource::InferencePool(one) => ("InferencePool", key(one)),
        Resource::InferenceProvider(one) => ("InferenceProvider", key(one)),
        Resource::InferenceWorkerSet(one) => ("InferenceWorkerSet", key(one)),
    }
}

trait Named {
    fn name(&self) -> String;
    fn space(&self) -> String;
}

impl<K: ResourceExt> Named for K {
    fn name(&self) -> String {
        self.name_any()
    }

    fn space(&self) -> String {
        self.namespace().unwrap_or_else(|| DEFAULT_NAMESPACE.into())
    }
}

/// Names for a message.
fn listed<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let names: BTreeSet<_> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "none".into() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests;
