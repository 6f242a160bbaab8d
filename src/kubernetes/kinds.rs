//! The kinds that policy is made of, watched and validated: the status of each object says whether it is accepted.
//!
//! Invariant: an object is judged once for each version of it, and forgotten when it goes.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use futures::future::join4;
use kube::{Api, Client, Resource, core::NamespaceResourceScope};
use serde::Serialize;
use serde_json::Map;

use super::{
    status::{StatusDesk, Verdict, Wanted},
    watches::{Selector, Watchable, Watched, Watches},
};
use crate::{
    config::PolicyConfig,
    policy::{
        crd::{GatewayBackend, InferencePolicy, InferencePool, InferenceProvider},
        in_one_line, validate,
    },
};

/// Watches and judges InferenceProviders, InferencePools, InferencePolicies and GatewayBackends for as long as it runs.
pub fn watch_policy(
    client: Client,
    config: &PolicyConfig,
    (watches, desk): (Watches, StatusDesk),
) -> impl Future<Output = Infallible> + Send + use<> {
    let scope = Scope { client, namespace: config.namespace.clone(), watches, desk };
    let all = join4(
        scope.judge::<InferenceProvider>(),
        scope.judge::<InferencePool>(),
        scope.judge::<InferencePolicy>(),
        scope.judge::<GatewayBackend>(),
    );
    async move { all.await.0 }
}

struct Scope {
    client: Client,
    namespace: Option<String>,
    watches: Watches,
    desk: StatusDesk,
}

impl Scope {
    fn judge<K>(&self) -> impl Future<Output = Infallible> + Send + use<K>
    where
        K: Watchable + Resource<Scope = NamespaceResourceScope> + Serialize,
    {
        let api: Api<K> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let (watched, follow) = self.watches.start(api, Selector::default());
        let judge = judge(watched, self.desk.clone());
        async move {
            tokio::select! {
                never = follow => never,
                never = judge => never,
            }
        }
    }
}

async fn judge<K: Watchable + Serialize>(mut watched: Watched<K>, desk: StatusDesk) -> Infallible {
    let mut before = HashMap::new();
    loop {
        let now: HashMap<_, _> =
            watched.all().iter().map(|object| (name(&**object), object.clone())).collect();
        for (name, object) in &now {
            if !before.get(name).is_some_and(|was| Arc::ptr_eq(was, object)) {
                desk.say(&**object, verdict(&**object));
            }
        }
        before.iter().filter(|(name, _)| !now.contains_key(*name)).for_each(|(_, gone)| desk.forget(&**gone));
        before = now;
        watched.changed().await;
    }
}

fn name<K: Resource>(object: &K) -> (Option<String>, Option<String>) {
    (object.meta().namespace.clone(), object.meta().name.clone())
}

fn verdict<K: Serialize>(object: &K) -> Wanted {
    let problems = validate(object);
    let holds = problems.is_empty();
    let (reason, message) =
        if holds { ("Valid", "it can be used".into()) } else { ("Invalid", in_one_line(&problems)) };
    Wanted { conditions: vec![Verdict { kind: "Accepted", holds, reason, message }], fields: Map::new() }
}
