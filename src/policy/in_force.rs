//! What is in force: of each resource the last version that was sound, so that a broken edit takes nothing down.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    compile::{self, Identity, Policies, Weight},
    crd,
    eval::Key,
    resource::{self, Resource},
    standing::Standing,
};

/// Sound versions of resources.
#[derive(Debug, Default)]
pub struct InForce {
    held: BTreeMap<Identity, Held>,
}

#[derive(Debug)]
struct Held {
    generation: Option<i64>,
    resource: Resource,
}

impl InForce {
    /// Takes in the resources that exist now, as an API server or a file has them: what is in force, and where each
    /// stands. One that is not among them any more is not in force any more. What is none of our kinds is passed over.
    pub fn update(
        &mut self,
        now: impl IntoIterator<Item = Value>,
        worker_sets: Option<&BTreeSet<String>>,
    ) -> (Policies, Vec<Standing>) {
        let mut there = BTreeSet::new();
        let mut standings: Vec<_> =
            now.into_iter().filter_map(|value| self.take(value, &mut there)).collect();
        self.held.retain(|identity, _| there.contains(identity));
        let (identities, resources): (Vec<_>, Vec<_>) =
            self.held.iter().map(|(identity, held)| (identity.clone(), held.resource.clone())).unzip();
        let (policies, findings) = compile::compile(&resources, worker_sets);
        for finding in findings {
            let identity = &identities[finding.resource];
            let of = |one: &&mut Standing| (one.kind, &one.key) == (identity.0, &identity.1);
            let Some(standing) = standings.iter_mut().find(of) else { continue };
            match finding.weight {
                Weight::Suspicious => standing.suspicious.push(finding.problem),
                Weight::Unresolved => standing.unresolved.push(finding.problem),
                Weight::Conflict => standing.rejected.push(finding.problem),
            }
        }
        (policies, standings)
    }

    /// `there` are the ones that were taken in already.
    fn take(&mut self, value: Value, there: &mut BTreeSet<Identity>) -> Option<Standing> {
        let text = |pointer| value.pointer(pointer).and_then(Value::as_str);
        let kind = crd::kinds().into_iter().find(|kind| Some(*kind) == text("/kind"))?;
        let key = Key {
            namespace: text("/metadata/namespace").unwrap_or(compile::DEFAULT_NAMESPACE).into(),
            name: text("/metadata/name")?.into(),
        };
        let generation = value.pointer("/metadata/generation").and_then(Value::as_i64);
        let identity = (kind, key.clone());
        let rejected = match resource::read(value) {
            Ok(_) if !there.insert(identity.clone()) => vec![compile::taken(&identity)],
            Ok(resource) => {
                self.held.insert(identity.clone(), Held { generation, resource });
                Vec::new()
            }
            Err(problems) => {
                there.insert(identity.clone());
                problems
            }
        };
        let active = self.held.get(&identity).and_then(|held| held.generation);
        Some(Standing {
            kind,
            key,
            generation,
            active,
            rejected,
            unresolved: Vec::new(),
            suspicious: Vec::new(),
            unread: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(kind: &str, generation: i64, spec: Value) -> Value {
        json!({
            "apiVersion": format!("{}/{}", crd::GROUP, crd::VERSION), "kind": kind,
            "metadata": {"name": "x", "generation": generation}, "spec": spec,
        })
    }

    fn pool(generation: i64, name: &str) -> Value {
        let spec = json!({"models": [{"name": name, "backends": [{"workerSet": {"name": "s"}}]}]});
        object("InferencePool", generation, spec)
    }

    fn models(policies: &Policies) -> Vec<String> {
        policies.pools().flat_map(|pool| pool.names(None)).map(|name| name.to_string()).collect()
    }

    #[test]
    fn a_broken_edit_leaves_the_last_sound_version_in_force() {
        let mut in_force = InForce::default();
        let (policies, standings) = in_force.update([pool(1, "old")], None);
        assert_eq!((models(&policies), standings[0].active), (vec!["old".to_owned()], Some(1)));

        let (policies, standings) = in_force.update([pool(2, "no name")], None);
        assert_eq!(models(&policies), ["old"]);
        assert_eq!((standings[0].generation, standings[0].active), (Some(2), Some(1)));
        assert!(standings[0].rejected[0].to_string().starts_with("`spec.models[0].name` has to be"));

        let (policies, standings) = in_force.update([pool(3, "new")], None);
        assert_eq!((models(&policies), standings[0].active), (vec!["new".to_owned()], Some(3)));
        assert_eq!(standings[0].rejected, []);

        let (policies, standings) = in_force.update([], None);
        assert_eq!((models(&policies).len(), standings.len()), (0, 0));
        let (policies, standings) = in_force.update([pool(4, "")], None);
        assert_eq!(
            (models(&policies).len(), standings[0].active),
            (0, None),
            "what was deleted does not come back"
        );
    }

    #[test]
    fn of_two_with_one_name_the_first_is_in_force() {
        let (policies, standings) = InForce::default().update([pool(1, "a"), pool(1, "b")], None);
        assert_eq!(models(&policies), ["a"]);
        assert_eq!(standings[0].rejected, []);
        let said = standings[1].rejected[0].to_string();
        assert_eq!(said, "`metadata.name` is \"x\", as of another InferencePool in default");
    }

    #[test]
    fn each_is_told_what_it_names_that_does_not_exist() {
        let backend = object("GatewayBackend", 1, json!({"poolRef": {"name": "gone"}}));
        let sets = BTreeSet::from(["t".to_owned()]);
        let (_, standings) =
            InForce::default().update([pool(1, "m"), json!({"kind": "Pod"}), backend], Some(&sets));
        let unresolved: Vec<_> = standings.iter().map(|one| one.unresolved[0].path.to_string()).collect();
        assert_eq!(unresolved, ["spec.models[0].backends[0].workerSet.name", "spec.poolRef.name"]);
    }
}
