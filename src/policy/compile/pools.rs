//! The models of a pool and what is behind them.

use std::{collections::HashMap, sync::Arc};

use super::{
    super::{
        crd::{self, InferencePool, InferenceProviderSpec, PublishedModel},
        eval::{Authorization, Backend, Key, Model, Pool, Provider},
        problem::FieldPath,
    },
    Compiler, listed,
};

/// A place in a resource.
#[derive(Clone)]
pub(super) struct Place {
    pub resource: usize,
    pub path: FieldPath,
}

impl Place {
    pub(super) fn field(&self, name: &str) -> Self {
        Self { resource: self.resource, path: self.path.field(name) }
    }

    pub(super) fn item(&self, index: usize) -> Self {
        Self { resource: self.resource, path: self.path.item(index) }
    }
}

impl Compiler<'_> {
    pub(super) fn pool(&mut self, index: usize, key: &Key, pool: &InferencePool) -> Pool {
        let models = Place { resource: index, path: FieldPath::of("spec.models") };
        let compiled: Box<[Model]> = pool
            .spec
            .models
            .iter()
            .enumerate()
            .map(|(n, model)| self.model(key, model, &models.item(n).field("backends")))
            .collect();
        let mut by_name = HashMap::new();
        for (n, model) in pool.spec.models.iter().enumerate() {
            by_name.extend(model.aliases.iter().chain([&model.name]).map(|name| (name.clone(), n)));
        }
        let rules = self.rules(key, &compiled);
        Pool { key: key.clone(), models: compiled, rules, by_name }
    }

    fn model(&mut self, pool: &Key, model: &PublishedModel, backends: &Place) -> Model {
        let of_model = |(n, backend)| self.backend(pool, model, (backend, &backends.item(n)));
        Model {
            name: model.name.as_str().into(),
            tenants: model.tenants.clone().into(),
            backends: model.backends.iter().enumerate().filter_map(of_model).collect(),
        }
    }

    /// `None`: what it refers to does not exist. A worker set may yet come: it is a backend without workers.
    fn backend(
        &mut self,
        pool: &Key,
        model: &PublishedModel,
        (backend, at): (&crd::Backend, &Place),
    ) -> Option<Backend> {
        let named = |name: &Option<String>| -> Arc<str> { name.as_deref().unwrap_or(&model.name).into() };
        if let Some(set) = &backend.worker_set {
            let known = self.worker_sets.as_ref().is_none_or(|known| known.contains(&set.name));
            if !known {
                let known = listed(self.worker_sets.iter().flatten().map(String::as_str));
                let message = format!("is {:?}, which is no worker set; there are: {known}", set.name);
                self.unresolved(at.resource, at.path.field("workerSet").field("name"), message);
            }
            let source = set.name.as_str().into();
            return Some(Backend { source, model: named(&set.model), cost: set.cost, provider: None });
        }
        let reference = backend.provider.as_ref()?;
        let at = at.field("provider");
        let key = Key { namespace: pool.namespace.clone(), name: reference.name.as_str().into() };
        let Some(found) = self.providers.get(&key).copied() else {
            let there = self.providers.keys().filter(|other| other.namespace == key.namespace);
            let there = listed(there.map(|other| &*other.name));
            let message = format!(
                "is {:?}, but {} has no such InferenceProvider; there are: {there}",
                reference.name, key.namespace
            );
            self.unresolved(at.resource, at.path.field("name"), message);
            return None;
        };
        let model = named(&reference.model);
        let Some(of_provider) = found.spec.models.iter().find(|one| one.name == *model) else {
            let there = listed(found.spec.models.iter().map(|one| one.name.as_str()));
            let message = format!("is {model:?}, which `{}` does not have; it has: {there}", reference.name);
            self.unresolved(at.resource, at.path.field("model"), message);
            return None;
        };
        let authorization = Authorization::of(&found.spec, &key.namespace);
        let provider = Provider {
            id: key.to_string().into(),
            key,
            api: found.spec.api,
            authority: authority(&found.spec).into(),
            path_prefix: found.spec.path_prefix.as_deref().map(Arc::from),
            upstream: of_provider.upstream.as_deref().unwrap_or(&model).into(),
            expected_ttft_ms: of_provider.expected_ttft_ms,
            authorization,
        };
        let source = reference.name.as_str().into();
        Some(Backend { source, model, cost: of_provider.cost, provider: Some(Arc::new(provider)) })
    }
}

/// As requests name it.
fn authority(provider: &InferenceProviderSpec) -> String {
    match provider.port {
        443 => provider.host.clone(),
        port => format!("{}:{port}", provider.host),
    }
}
