//! Which InferenceWorkerSets are in force. Pure.
//!
//! Invariant: a name belongs to one worker set. The configuration comes before resources, and an older resource before
//! a younger one, so that nobody can take a name that is in use.

use std::{collections::BTreeMap, sync::Arc};

use super::spec::{Configured, Reason, Refusal, SetSpec, spec_of};
use crate::policy::crd::InferenceWorkerSet;

/// A resource by its namespace and name.
pub type Key = (String, String);

/// What becomes of one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    /// The resource.
    pub resource: Arc<InferenceWorkerSet>,
    /// What is in force of it: what it says, else what it last said that could be accepted.
    pub in_force: Option<SetSpec>,
    /// Why what it says now is not.
    pub refusal: Option<Refusal>,
}

impl Planned {
    /// Whose it is.
    pub fn key(&self) -> Key {
        key(&self.resource)
    }

    fn conflicts(&self) -> bool {
        self.refusal.as_ref().is_some_and(|refusal| refusal.reason == Reason::NameConflict)
    }
}

/// What is to become of every resource, given what was planned `before`.
pub fn plan(
    resources: &[Arc<InferenceWorkerSet>],
    configured: &Configured,
    before: &BTreeMap<Key, Planned>,
) -> BTreeMap<Key, Planned> {
    let mut by_age: Vec<_> = resources.iter().collect();
    // Ages are told in whole seconds: of equal ones, a name that is in use stays with whoever has it.
    let holds = |key: &Key| before.get(key).is_some_and(|planned| planned.in_force.is_some());
    by_age.sort_by_key(|resource| (created(resource), !holds(&key(resource)), key(resource)));
    let mut owners: BTreeMap<&str, &Arc<InferenceWorkerSet>> = BTreeMap::new();
    let mut planned = BTreeMap::new();
    for resource in by_age {
        let owner = owners.entry(name(resource)).or_insert(resource);
        let conflict = conflict(resource, owner, configured);
        let what = match conflict {
            Some(refusal) => Planned { resource: resource.clone(), in_force: None, refusal: Some(refusal) },
            None => accept(resource, configured, before.get(&key(resource))),
        };
        planned.insert(key(resource), what);
    }
    planned
}

/// A change that can't be accepted must not take away a fleet that works.
fn accept(resource: &Arc<InferenceWorkerSet>, configured: &Configured, before: Option<&Planned>) -> Planned {
    let resource = resource.clone();
    let before =
        before.filter(|before| before.resource.metadata.uid == resource.metadata.uid && !before.conflicts());
    let generation = resource.metadata.generation;
    if let Some(before) =
        before.filter(|b| generation.is_some() && b.resource.metadata.generation == generation)
    {
        // Only its status or its labels are new.
        return Planned { resource, ..before.clone() };
    }
    match spec_of(&resource, configured) {
        Ok(spec) => Planned { resource, in_force: Some(spec), refusal: None },
        Err(refusal) => {
            let in_force = before.and_then(|before| before.in_force.clone());
            Planned { resource, in_force, refusal: Some(refusal) }
        }
    }
}

fn conflict(
    resource: &InferenceWorkerSet,
    owner: &InferenceWorkerSet,
    configured: &Configured,
) -> Option<Refusal> {
    let name = name(resource);
    let shown = |resource: &InferenceWorkerSet| format!("InferenceWorkerSet `{}`", key_text(&key(resource)));
    let other = match configured.workersets.iter().any(|other| other == name) {
        true => "a `[[workerset]]` of Kinference's configuration".to_owned(),
        false if key(owner) != key(resource) => format!("{}, which was first", shown(owner)),
        false => return None,
    };
    let message = format!("the worker set name `{name}` of {} is already used by {other}", shown(resource));
    Some(Refusal { reason: Reason::NameConflict, message })
}

/// `namespace/name`
pub fn key_text((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

fn key(resource: &InferenceWorkerSet) -> Key {
    (resource.metadata.namespace.clone().unwrap_or_default(), name(resource).to_owned())
}

fn name(resource: &InferenceWorkerSet) -> &str {
    resource.metadata.name.as_deref().unwrap_or_default()
}

/// As RFC 3339 in UTC, which sorts as time does.
fn created(resource: &InferenceWorkerSet) -> Option<String> {
    let created = resource.metadata.creation_timestamp.as_ref()?;
    serde_json::to_value(created).ok()?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests;
