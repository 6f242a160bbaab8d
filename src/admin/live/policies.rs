//! Policies as the page shows them: what is in force and what it did lately, and what is not accepted and why.

use std::{collections::HashMap, sync::Arc};

use serde::Serialize;

use super::reader::{RuleKey, RuleSum};
use crate::policy::{Notices, Standing, compile::Policies, in_one_line};

/// Resources that are listed, those with problems first.
const MOST: usize = 200;

/// All of it.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    /// Whether policies decide at all.
    enabled: bool,
    /// What is wrong with the policy files, if that keeps them from being taken over.
    refused: Option<Arc<String>>,
    pools: Vec<ShownPool>,
    resources: Vec<ShownResource>,
    /// Resources that are not listed.
    more: usize,
}

#[derive(Debug, Serialize)]
struct ShownPool {
    /// `namespace/name`
    name: String,
    models: Vec<Arc<str>>,
    rules: Vec<ShownRule>,
}

#[derive(Debug, Serialize)]
struct ShownRule {
    policy: Arc<str>,
    rule: Arc<str>,
    generation: Option<i64>,
    #[serde(flatten)]
    sum: RuleSum,
}

#[derive(Debug, Serialize)]
struct ShownResource {
    kind: &'static str,
    name: String,
    generation: Option<i64>,
    active: Option<i64>,
    /// Why it is not accepted.
    rejected: Option<String>,
    /// What it names that does not exist.
    unresolved: Option<String>,
    /// What hardly does what was meant, or has no effect.
    suspicious: Option<String>,
}

impl Shown {
    /// Of the policies in force, if they decide; with what each rule did lately.
    pub fn of(policies: Option<&Policies>, notices: &Notices, mut did: HashMap<RuleKey, RuleSum>) -> Self {
        let mut pools = Vec::new();
        for pool in policies.into_iter().flat_map(Policies::pools) {
            let name = pool.key.to_string();
            let key: Arc<str> = name.as_str().into();
            let mut sum = |policy: &Arc<str>, rule: &Arc<str>| {
                did.remove(&(key.clone(), policy.clone(), rule.clone())).unwrap_or_default()
            };
            let rules = pool.rules.iter().map(|rule| ShownRule {
                policy: rule.policy.clone(),
                rule: rule.name.clone(),
                generation: rule.generation,
                sum: sum(&rule.policy, &rule.name),
            });
            let rules = rules.collect();
            pools.push(ShownPool { name, models: pool.names(None).cloned().collect(), rules });
        }
        let standings = notices.standings();
        let mut resources: Vec<_> = standings.iter().map(ShownResource::of).collect();
        resources.sort_by_key(|one| one.rejected.is_none() && one.unresolved.is_none());
        let more = resources.len().saturating_sub(MOST);
        resources.truncate(MOST);
        Self { enabled: policies.is_some(), refused: notices.refused(), pools, resources, more }
    }
}

impl ShownResource {
    fn of(standing: &Standing) -> Self {
        let said = |problems: &[_]| Some(in_one_line(problems)).filter(|said| !said.is_empty());
        Self {
            kind: standing.kind,
            name: standing.key.to_string(),
            generation: standing.generation,
            active: standing.active,
            rejected: said(&standing.rejected),
            unresolved: said(&standing.unresolved),
            suspicious: said(&standing.suspicious),
        }
    }
}
