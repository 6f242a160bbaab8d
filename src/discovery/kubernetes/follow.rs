//! Follows the engines of one worker set, and makes the fleet what they are.
//!
//! Invariant: only what a watch has listed in full is acted on. Until then, and while the API server is away, the fleet
//! stays as it was.

use std::{convert::Infallible, future::pending, sync::Arc};

use k8s_openapi::api::{core::v1::Pod, discovery::v1::EndpointSlice};
use kube::{Api, Client};
use tokio::sync::watch;

use super::{
    address::Addresses,
    nodes::Nodes,
    places::Places,
    pods, slices,
    spec::{SetSpec, Source},
    standing::{Seen, what},
};
use crate::{
    discovery::{FleetWriter, Found},
    kubernetes::{Selector, Watchable, Watched, Watches},
};

/// What every source of workers needs. Cheap to clone.
#[derive(Clone)]
pub struct Cluster {
    /// Of the API server.
    pub client: Client,
    /// Every watch.
    pub watches: Watches,
    /// Where engines go.
    pub fleet: FleetWriter,
    /// What is known of nodes.
    pub nodes: watch::Receiver<Arc<Nodes>>,
    /// Which addresses are taken.
    pub addresses: Addresses,
}

/// One worker set: what it asks for, and what is seen of it. A set that asks for nothing yet is left alone.
pub(super) struct Following {
    cluster: Cluster,
    spec: watch::Receiver<Option<SetSpec>>,
    seen: watch::Sender<Seen>,
    /// What was last told of in the log.
    told: Seen,
}

impl Following {
    pub(super) fn new(
        cluster: Cluster,
        spec: watch::Receiver<Option<SetSpec>>,
        seen: watch::Sender<Seen>,
    ) -> Self {
        Self { cluster, spec, seen, told: Seen::default() }
    }

    /// For as long as it is a worker set: what remains of it in the fleet is the caller's to remove.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            let spec = self.spec.borrow_and_update().clone();
            match spec.as_ref().and_then(|spec| spec.source.clone()) {
                Some(source) => {
                    self.told.listed = None;
                    self.follow(source).await;
                }
                None => {
                    if let Some(spec) = spec {
                        self.place(&spec, Vec::new(), Seen { listed: Some(0), ..Seen::default() });
                    }
                    self.changed().await;
                }
            }
        }
    }

    async fn follow(&mut self, source: Source) {
        let Cluster { client, watches, .. } = self.cluster.clone();
        match &source {
            Source::Service { namespace, name } => {
                let labels = Some(format!("{}={name}", slices::SERVICE_LABEL));
                let api = Api::<EndpointSlice>::namespaced(client, namespace);
                let started = watches.start(api, Selector { labels, fields: None });
                self.watch(&source, started, slices::places).await;
            }
            Source::Pods { namespace, labels } => {
                let selector = Selector { labels: Some(labels.clone()), fields: None };
                let started = watches.start(Api::<Pod>::namespaced(client, namespace), selector);
                self.watch(&source, started, pods::places).await;
            }
        }
    }

    /// Acts on what is watched until another source is asked for.
    async fn watch<K: Watchable>(
        &mut self,
        source: &Source,
        (mut watched, run): (Watched<K>, impl Future<Output = Infallible>),
        read: fn(&[Arc<K>], Addresses) -> Places,
    ) {
        tokio::pin!(run);
        let mut nodes = self.cluster.nodes.clone();
        loop {
            let spec = self.spec.borrow_and_update().clone();
            let Some(spec) = spec.filter(|spec| spec.source.as_ref() == Some(source)) else { return };
            self.cluster
                .fleet
                .seek(&spec.set.name, format!("{} (worker set `{}`)", what(source), spec.set.name));
            if watched.is_synced() {
                let all = watched.all();
                let known = nodes.borrow_and_update().clone();
                let places = read(&all, self.cluster.addresses);
                let (found, refused) = spec.engines.at(&places, &known);
                let (left_out, missing_ports) = (refused.tell(), spec.engines.missing_ports(&places));
                self.place(&spec, found, Seen { listed: Some(all.len()), left_out, missing_ports });
            } else {
                self.seen.send_if_modified(|seen| seen.listed.take().is_some());
            }
            tokio::select! {
                never = &mut run => match never {},
                () = self.changed() => {}
                () = watched.changed() => {}
                () = news(&mut nodes) => {}
            }
        }
    }

    fn place(&mut self, spec: &SetSpec, found: Vec<Found>, seen: Seen) {
        self.tell(spec, &seen);
        self.cluster.fleet.place(&spec.set, found);
        self.seen.send_if_modified(|before| std::mem::replace(before, seen.clone()) != seen);
    }

    /// What is not as it was asked for, once.
    fn tell(&mut self, spec: &SetSpec, seen: &Seen) {
        let workerset = &*spec.set.name;
        let told = std::mem::replace(&mut self.told, seen.clone());
        if let Some(source) = spec.source.as_ref().map(what) {
            match (told.listed, seen.listed) {
                (None | Some(1..), Some(0)) => {
                    tracing::warn!(workerset, source, "nothing is there to find workers by");
                }
                (None | Some(0), Some(listed @ 1..)) => {
                    tracing::info!(workerset, source, listed, "found what workers are found by");
                }
                _ => {}
            }
        }
        if let Some(left_out) = seen.left_out.as_ref().filter(|_| seen.left_out != told.left_out) {
            tracing::warn!(workerset, left_out, "not every address that was found is a worker");
        }
        if let Some(missing) =
            seen.missing_ports.as_ref().filter(|_| seen.missing_ports != told.missing_ports)
        {
            tracing::warn!(workerset, missing, "a port that was asked for by name is not there");
        }
    }

    /// Another spec.
    async fn changed(&mut self) {
        news(&mut self.spec).await;
    }
}

/// Waits for news; for ever once there can be none.
pub(super) async fn news<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        pending().await
    }
}
