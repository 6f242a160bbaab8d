//! A compiled pool: the models that it publishes, what is behind each, and its rules.

use std::{collections::HashMap, fmt, sync::Arc};

use super::{
    super::{
        crd::{CandidateKind, ProviderApi, TokenCost},
        secrets::{NoSecret, Secrets},
    },
    authorization::Authorization,
    request::{PoolState, Request},
    rule::{Matching, Rule},
    run::Matched,
};
use crate::types::{Api, ProviderTarget};

/// Names that an error tells at most, and the most characters of each.
const MOST_NAMES: usize = 32;
const LONGEST_NAME: usize = 200;

/// A resource's namespace and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A pool, immutable.
#[derive(Debug)]
pub struct Pool {
    /// Which one.
    pub key: Key,
    /// What it publishes, in its order.
    pub models: Box<[Model]>,
    /// Its rules, in the order in which they are tried.
    pub rules: Box<[Rule]>,
    /// Names and aliases.
    pub(in crate::policy) by_name: HashMap<String, usize>,
}

/// A published model.
#[derive(Clone, Debug)]
pub struct Model {
    /// The name that it is published by.
    pub name: Arc<str>,
    /// The tenants that may ask for it; none: all.
    pub tenants: Box<[String]>,
    /// What serves it.
    pub backends: Box<[Backend]>,
}

/// A model of a worker set or of a provider.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The worker set's or provider's name.
    pub source: Arc<str>,
    /// The name of the model there.
    pub model: Arc<str>,
    /// What its tokens cost.
    pub cost: TokenCost,
    /// The provider, if it is one.
    pub provider: Option<Arc<Provider>>,
}

/// A model of a provider, with all that a request to it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Provider {
    /// Which one.
    pub key: Key,
    /// Its key as one text, by which its load is kept.
    pub id: Arc<str>,
    /// The API that it speaks.
    pub api: ProviderApi,
    /// Its host, with its port unless that is 443.
    pub authority: Arc<str>,
    /// Before the request's path.
    pub path_prefix: Option<Arc<str>>,
    /// What the provider calls the model.
    pub upstream: Arc<str>,
    /// Milliseconds to the first token, until requests have shown them.
    pub expected_ttft_ms: u32,
    /// The header that authorizes requests, where we set it.
    pub authorization: Option<Authorization>,
}

impl Provider {
    /// Whether it takes requests of that API: nothing is translated.
    pub fn serves(&self, api: Api) -> bool {
        match self.api {
            ProviderApi::OpenAI | ProviderApi::Bedrock => {
                matches!(api, Api::Completions | Api::ChatCompletions)
            }
            ProviderApi::Anthropic => api == Api::Messages,
        }
    }

    /// Whether a streamed answer tells its usage only where the request asks for it.
    pub fn is_asked_for_usage(&self) -> bool {
        match self.api {
            ProviderApi::OpenAI | ProviderApi::Bedrock => true,
            ProviderApi::Anthropic => false,
        }
    }

    /// All that a proxy has to be told to send a request there now.
    ///
    /// # Errors
    /// Why its credential is not known.
    pub fn target(&self, secrets: &Secrets) -> Result<ProviderTarget, NoSecret> {
        let credential = self.authorization.as_ref().map(|one| one.credential(secrets)).transpose()?;
        Ok(ProviderTarget {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            authority: self.authority.clone(),
            path_prefix: self.path_prefix.clone(),
            credential: credential.map(Arc::new),
        })
    }
}

impl Backend {
    /// What its candidates are.
    pub fn kind(&self) -> CandidateKind {
        if self.provider.is_some() { CandidateKind::Provider } else { CandidateKind::Worker }
    }
}

impl Model {
    /// Whether that tenant may ask for it.
    pub fn admits(&self, tenant: Option<&str>) -> bool {
        self.tenants.is_empty() || tenant.is_some_and(|tenant| self.tenants.iter().any(|one| one == tenant))
    }

    /// Its providers, each with the index of its backend. One that calls two of its models the same is there once.
    pub fn providers(&self) -> impl Iterator<Item = (usize, &Arc<Provider>)> {
        let all = |upto: usize| {
            let backends = self.backends[..upto].iter().enumerate();
            backends.filter_map(|(index, backend)| Some((index, backend.provider.as_ref()?)))
        };
        let same = |one: &Provider, other: &Provider| one.key == other.key && one.upstream == other.upstream;
        all(self.backends.len()).filter(move |(n, one)| !all(*n).any(|(_, other)| same(one, other)))
    }
}

impl Pool {
    /// The index of the model with that name or alias, if the tenant may ask for it.
    pub fn find(&self, name: &str, tenant: Option<&str>) -> Option<usize> {
        let index = *self.by_name.get(name)?;
        self.models[index].admits(tenant).then_some(index)
    }

    /// The names that the tenant may ask for.
    pub fn names(&self, tenant: Option<&str>) -> impl Iterator<Item = &Arc<str>> {
        self.models.iter().filter(move |model| model.admits(tenant)).map(|model| &model.name)
    }

    /// What a client is told who asks for a model that is not there for the tenant.
    pub fn unpublished(&self, model: &str, tenant: Option<&str>) -> String {
        let cut = |name: &str| name.chars().take(LONGEST_NAME).collect::<String>();
        let mut names = self.names(tenant);
        let mut listed: Vec<_> =
            names.by_ref().take(MOST_NAMES).map(|name| format!("`{}`", cut(name))).collect();
        let more = names.count();
        if more > 0 {
            listed.push(format!("{more} more"));
        }
        let there = if listed.is_empty() {
            "There are none.".into()
        } else {
            format!("There are: {}.", listed.join(", "))
        };
        format!("The model `{}` does not exist. {there}", cut(model))
    }

    /// The rules that decide over a request for the model with that index: the first that matches, and, as long as such
    /// a rule may pass the request on, the next.
    pub fn rules_for(self: &Arc<Self>, model: usize, request: &Request<'_>, state: &PoolState) -> Matched {
        let mut matched = Matched::new(self.clone(), model, request);
        for (index, rule) in self.rules.iter().enumerate() {
            match rule.matches(model, request, state) {
                Matching::Yes => {
                    matched.rules.push(index);
                    if !rule.passes_on() {
                        break;
                    }
                }
                Matching::No => {}
                Matching::Unknown(why) => matched.unknown.push((index, why)),
            }
        }
        matched
    }
}
