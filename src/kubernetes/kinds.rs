//! The kinds that policy is made of, watched: what is declared, and a word on each object on where it stands.
//!
//! Invariant: a word is of the object as it was looked at last; of one that has gone nothing more is said.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use futures::{
    FutureExt,
    future::{BoxFuture, join4, select_all},
};
use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    status::{StatusDesk, Verdict, Wanted},
    watches::{Selector, Watchable, Watched, Watches},
};
use crate::{
    config::PolicyConfig,
    policy::{
        Standing,
        crd::{GatewayBackend, InferencePolicy, InferencePool, InferenceProvider},
    },
};

/// The field of a status that tells the generation in force, where a kind has it.
const ACTIVE: &str = "activeGeneration";

/// InferenceProviders, InferencePools, InferencePolicies and GatewayBackends.
pub struct PolicyKinds {
    kinds: [Box<dyn Kind>; 4],
    desk: StatusDesk,
}

/// Watches them, and what keeps that fresh for as long as it runs.
pub fn watch_policy(
    client: Client,
    config: &PolicyConfig,
    (watches, desk): (Watches, StatusDesk),
) -> (PolicyKinds, impl Future<Output = Infallible> + Send + use<>) {
    let scope = Scope { client, namespace: config.namespace.clone(), watches };
    let (providers, first) = scope.watch::<InferenceProvider>(true);
    let (pools, second) = scope.watch::<InferencePool>(true);
    let (policies, third) = scope.watch::<InferencePolicy>(true);
    let (backends, fourth) = scope.watch::<GatewayBackend>(false);
    let all = join4(first, second, third, fourth);
    (PolicyKinds { kinds: [providers, pools, policies, backends], desk }, async move { all.await.0 })
}

impl PolicyKinds {
    /// Whether each kind has been listed: without one of them, what the others say may mean something else.
    pub fn is_synced(&self) -> bool {
        self.kinds.iter().all(|kind| kind.is_synced())
    }

    /// Waits until something is other than it was looked at.
    pub async fn changed(&mut self) {
        select_all(self.kinds.iter_mut().map(|kind| kind.changed())).await;
    }

    /// All objects, with what of them matters to policy.
    pub fn look(&mut self) -> Vec<Value> {
        self.kinds.iter_mut().flat_map(|kind| kind.look()).collect()
    }

    /// Says where the objects that were looked at stand, each in its turn.
    pub fn say(&mut self, standings: &[Standing]) {
        let mut rest = standings;
        for kind in &mut self.kinds {
            rest = kind.say(rest, &self.desk);
        }
    }
}

struct Scope {
    client: Client,
    namespace: Option<String>,
    watches: Watches,
}

impl Scope {
    fn watch<K>(
        &self,
        tells_active: bool,
    ) -> (Box<dyn Kind>, impl Future<Output = Infallible> + Send + use<K>)
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope> + Serialize,
    {
        let api: Api<K> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let (watched, follow) = self.watches.start(api, Selector::default());
        let objects = Objects { watched, tells_active, seen: Arc::default(), said: HashMap::new() };
        (Box::new(objects), follow)
    }
}

trait Kind: Send {
    fn is_synced(&self) -> bool;
    fn changed(&mut self) -> BoxFuture<'_, ()>;
    fn look(&mut self) -> Vec<Value>;
    /// Of those that were looked at; what is left is of others.
    fn say<'s>(&mut self, standings: &'s [Standing], desk: &StatusDesk) -> &'s [Standing];
}

type Name = (Option<String>, Option<String>);

/// The objects of one kind.
struct Objects<K> {
    watched: Watched<K>,
    tells_active: bool,
    seen: Arc<Vec<Arc<K>>>,
    said: HashMap<Name, (Arc<K>, Wanted)>,
}

impl<K: Watchable + Serialize> Kind for Objects<K> {
    fn is_synced(&self) -> bool {
        self.watched.is_synced()
    }

    fn changed(&mut self) -> BoxFuture<'_, ()> {
        self.watched.changed().boxed()
    }

    fn look(&mut self) -> Vec<Value> {
        self.seen = self.watched.all();
        self.seen.iter().map(|object| essence(&**object)).collect()
    }

    fn say<'s>(&mut self, standings: &'s [Standing], desk: &StatusDesk) -> &'s [Standing] {
        let mut before = std::mem::take(&mut self.said);
        for (object, standing) in self.seen.iter().zip(standings) {
            let (name, wanted) = (name(&**object), wanted(standing, self.tells_active));
            let known = before.remove(&name);
            if !known.is_some_and(|(was, said)| Arc::ptr_eq(&was, object) && said == wanted) {
                desk.say(&**object, wanted.clone());
            }
            self.said.insert(name, (object.clone(), wanted));
        }
        before.values().for_each(|(gone, _)| desk.forget(&**gone));
        standings.get(self.seen.len()..).unwrap_or_default()
    }
}

/// An object without its status, and without what others keep in its metadata.
fn essence<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let meta = object.meta();
    json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {"namespace": meta.namespace, "name": meta.name, "generation": meta.generation},
        "spec": json!(object)["spec"],
    })
}

fn name<K: Resource>(object: &K) -> Name {
    (object.meta().namespace.clone(), object.meta().name.clone())
}

fn wanted(standing: &Standing, tells_active: bool) -> Wanted {
    let verdict = |condition: crate::policy::Condition| Verdict {
        kind: condition.kind,
        holds: condition.holds,
        reason: condition.reason,
        message: condition.message,
    };
    let active = tells_active.then(|| (ACTIVE.to_owned(), json!(standing.active)));
    Wanted {
        conditions: standing.conditions().into_iter().map(verdict).collect(),
        fields: Map::from_iter(active),
    }
}
