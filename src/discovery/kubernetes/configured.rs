//! Worker sets of the configuration file whose engines are found: through a Service or an InferencePool.

use std::{convert::Infallible, sync::Arc};

use kube::Api;
use tokio::sync::watch;

use super::{
    engines::{Engines, Kv, Ports},
    follow::{Cluster, Following},
    inference_pool::{InferencePool, source},
    spec::{SetSpec, Source},
    standing::Seen,
};
use crate::{
    config::PortDefaults,
    fleet::WorkerSet,
    kubernetes::{Selector, Watched},
};

/// An object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

fn spec(set: &Arc<WorkerSet>, (source, ports): (Option<Source>, Ports), defaults: PortDefaults) -> SetSpec {
    let engines = Engines { model_name: String::new(), ports, defaults, kv: Kv::Ports { ranks: 1 } };
    SetSpec { set: set.clone(), source, engines }
}

/// Follows the endpoints of a Service. Engines are reached on the default ports, whatever names the Service has.
pub async fn follow_service(
    cluster: Cluster,
    set: Arc<WorkerSet>,
    (Named { namespace, name }, defaults): (Named, PortDefaults),
) -> Infallible {
    let source = Source::Service { namespace, name };
    let (_spec_to, spec) = watch::channel(Some(spec(&set, (Some(source), Ports::Defaults), defaults)));
    Following::new(cluster, spec, watch::channel(Seen::default()).0).run().await
}

/// Follows the pods of an InferencePool. One that does not exist has none.
pub async fn follow_pool(
    cluster: Cluster,
    set: Arc<WorkerSet>,
    (pool, defaults): (Named, PortDefaults),
) -> Infallible {
    let api = Api::<InferencePool>::namespaced(cluster.client.clone(), &pool.namespace);
    let fields = Some(format!("metadata.name={}", pool.name));
    let (mut watched, run) = cluster.watches.start(api, Selector { labels: None, fields });
    let (spec_to, spec_of_pool) = watch::channel(None);
    let what = format!("InferencePool `{}` in namespace `{}`", pool.name, pool.namespace);
    cluster.fleet.seek(&set.name, format!("{what} (worker set `{}`)", set.name));
    let following = Following::new(cluster, spec_of_pool, watch::channel(Seen::default()).0);
    let read = async {
        let mut exists = None;
        loop {
            if watched.is_synced() {
                let found = found(&watched, &pool);
                let existed = exists.replace(found.is_some());
                if existed != exists {
                    tell(&set.name, &pool, found.is_some());
                }
                let (source, ports) =
                    found.map_or((None, Ports::Defaults), |(source, ports)| (Some(source), ports));
                let now = Some(spec(&set, (source, ports), defaults));
                spec_to.send_if_modified(|before| {
                    *before != now && {
                        before.clone_from(&now);
                        true
                    }
                });
            }
            watched.changed().await;
        }
    };
    tokio::select! {
        never = run => never,
        never = following.run() => never,
        never = read => never,
    }
}

fn tell(workerset: &str, Named { namespace, name }: &Named, exists: bool) {
    if exists {
        tracing::info!(workerset, namespace, name, "the InferencePool is there");
    } else {
        tracing::warn!(
            workerset,
            namespace,
            name,
            "there is no such InferencePool, or it selects nothing: no workers"
        );
    }
}

fn found(watched: &Watched<InferencePool>, pool: &Named) -> Option<(Source, Ports)> {
    watched.all().first().and_then(|found| source(found, &pool.namespace))
}
