//! The Secrets that providers name, each watched by itself: that needs no right to read any other.
//!
//! Invariant: of every key that is wanted it is said what it is, or why that is not known. A Secret that nobody names any
//! more is forgotten.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::Duration};

use futures::{
    FutureExt,
    future::{BoxFuture, select_all},
};
use k8s_openapi::api::core::v1::Secret as Object;
use kube::{Api, Client};
use tokio::time::sleep;

use super::watches::{Selector, Watched, Watches};
use crate::policy::{Known, NoSecret, Secret, SecretKey, Secrets};

/// The most Secrets that are watched at once.
pub const MOST_SECRETS: usize = 64;
/// How often it is looked why a Secret can't be read.
const LOOK: Duration = Duration::from_secs(1);

/// Namespace and name.
type Name = (Arc<str>, Arc<str>);

/// Keeps `secrets` as the API server has them, for as long as it runs.
pub async fn follow_secrets(client: Client, watches: Watches, secrets: Secrets) -> Infallible {
    let mut wanted = secrets.wanted();
    let mut all = All { client, watches, followed: BTreeMap::new() };
    loop {
        let keys = wanted.borrow_and_update().clone();
        all.follow(keys.iter().map(|key| (key.namespace.clone(), key.name.clone())).collect());
        let known: Known = keys.iter().map(|key| (key.clone(), all.find(key))).collect();
        secrets.replace(known);
        tokio::select! {
            Ok(()) = wanted.changed() => {}
            () = all.changed() => {}
            () = sleep(LOOK), if all.waits() => {}
        }
    }
}

struct All {
    client: Client,
    watches: Watches,
    followed: BTreeMap<Name, Followed>,
}

/// One Secret. Dropping it ends its watch.
struct Followed {
    watched: Watched<Object>,
    run: BoxFuture<'static, Infallible>,
}

impl All {
    /// Those names and no others, as many as may be.
    fn follow(&mut self, mut names: Vec<Name>) {
        names.sort_unstable();
        names.dedup();
        names.truncate(MOST_SECRETS);
        self.followed.retain(|name, _| names.binary_search(name).is_ok());
        for name in names {
            let (client, watches) = (&self.client, &self.watches);
            self.followed.entry(name).or_insert_with_key(|(namespace, name)| {
                let api: Api<Object> = Api::namespaced(client.clone(), namespace);
                let fields = Some(format!("metadata.name={name}"));
                let (watched, run) = watches.start(api, Selector { fields, ..Selector::default() });
                Followed { watched, run: run.boxed() }
            });
        }
    }

    fn find(&self, key: &SecretKey) -> Result<Secret, NoSecret> {
        let Some(Followed { watched, .. }) = self.followed.get(&(key.namespace.clone(), key.name.clone()))
        else {
            let why = format!("providers name more than {MOST_SECRETS} Secrets");
            return Err(NoSecret::Unreadable(why.into()));
        };
        if !watched.is_synced() {
            return Err(watched.why_not().map_or(NoSecret::Unread, NoSecret::Unreadable));
        }
        let objects = watched.all();
        let data = objects.first().and_then(|object| object.data.as_ref());
        let value = data.and_then(|data| data.get(&*key.key)).ok_or(NoSecret::Absent)?;
        Secret::read(&value.0)
    }

    /// Whether one of them was never seen.
    fn waits(&self) -> bool {
        self.followed.values().any(|one| !one.watched.is_synced())
    }

    /// Keeps them fresh until one is other than it was.
    async fn changed(&mut self) {
        if self.followed.is_empty() {
            std::future::pending().await
        }
        select_all(self.followed.values_mut().map(|one| one.changed().boxed())).await;
    }
}

impl Followed {
    async fn changed(&mut self) {
        tokio::select! {
            never = &mut self.run => match never {},
            () = self.watched.changed() => {}
        }
    }
}
