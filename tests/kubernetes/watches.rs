//! What readers of a watch see of a real API server's objects.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kinference::{
    kubernetes::{Bounds, Pace, Selector, WatchState, Watched, Watches},
    observe::Metrics,
    policy::crd::InferenceWorkerSet,
};
use kube::{
    Api, CustomResourceExt, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use crate::{PATIENCE, apiserver::ApiServer, cluster, eventually};

/// Quick ones.
pub const PACE: Pace = Pace {
    watch: Duration::from_secs(2),
    answer: Duration::from_secs(1),
    check: Duration::from_secs(300),
    retry: Bounds { least: Duration::from_millis(20), most: Duration::from_millis(200) },
};

pub fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"side": name.split('-').next()}}, "data": {"v": value}
    }))
    .unwrap()
}

pub async fn put(api: &Api<ConfigMap>, name: &str, value: &str) {
    let object = config_map(name, value);
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": object.metadata, "data": object.data});
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.unwrap();
}

pub fn seen(watched: &Watched<ConfigMap>) -> Vec<String> {
    let text = |map: &std::sync::Arc<ConfigMap>| {
        format!("{}={}", map.name_any(), map.data.as_ref().map_or("", |data| data["v"].as_str()))
    };
    watched.all().iter().map(text).filter(|text| !text.starts_with("kube-root-ca")).collect()
}

/// Waits until it is shown.
pub async fn shown(watched: &mut Watched<ConfigMap>, expected: &[&str]) {
    let wait = async {
        while !watched.is_synced() || seen(watched) != expected {
            watched.changed().await;
        }
    };
    let done = timeout(PATIENCE, wait).await;
    assert!(done.is_ok(), "{:?} is not {expected:?}", seen(watched));
}

#[tokio::test]
async fn objects_come_change_and_go() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let namespace = cluster::namespace(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    put(&maps, "left-b", "1").await;
    put(&maps, "right-c", "1").await;
    let watches = Watches::with_pace(PACE, &Metrics::new());
    let (mut all, follow) = watches.start(maps.clone(), Selector::default());
    let left = Selector { labels: Some("side=left".into()), fields: None };
    let (mut lefts, follow_left) = watches.start(maps.clone(), left);
    let named = Selector { labels: None, fields: Some("metadata.name=right-c".into()) };
    let (mut one, follow_one) = watches.start(maps.clone(), named);
    assert!(!all.is_synced() && all.all().is_empty());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    tasks.spawn(follow_left);
    tasks.spawn(follow_one);

    shown(&mut all, &["left-b=1", "right-c=1"]).await;
    shown(&mut lefts, &["left-b=1"]).await;
    shown(&mut one, &["right-c=1"]).await;
    put(&maps, "left-a", "2").await;
    shown(&mut all, &["left-a=2", "left-b=1", "right-c=1"]).await;
    put(&maps, "left-a", "3").await;
    shown(&mut lefts, &["left-a=3", "left-b=1"]).await;
    maps.delete("left-b", &DeleteParams::default()).await.unwrap();
    shown(&mut all, &["left-a=3", "right-c=1"]).await;
    shown(&mut lefts, &["left-a=3"]).await;
    assert!(all.all().iter().all(|map| map.metadata.managed_fields.is_none()));
    let report = watches.report();
    assert_eq!(report.len(), 3);
    for watch in report {
        assert_eq!(
            (watch.resource.as_str(), watch.namespace.as_deref()),
            ("configmaps", Some(namespace.as_str()))
        );
        assert_eq!(watch.state, WatchState::Current);
    }
}

/// Nobody is told of what the API server does as a matter of course: it ends each watch after a while.
#[tokio::test]
async fn restarts_of_a_watch_are_no_change() {
    let Some(cluster) = ApiServer::find() else { return };
    let client = cluster.client().await;
    let namespace = cluster::namespace(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    put(&maps, "a", "1").await;
    let metrics = Metrics::new();
    let brief = Pace { watch: Duration::from_secs(1), ..PACE };
    let (mut watched, follow) = Watches::with_pace(brief, &metrics).start(maps.clone(), Selector::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    shown(&mut watched, &["a=1"]).await;
    tokio::select! {
        () = watched.changed() => panic!("{:?}", seen(&watched)),
        () = eventually("three restarts", async || {
            let text = metrics.render();
            (0..3).all(|n| !text.contains(&format!("restarts_total{{cause=\"ended\"}} {n}\n")))
                .then_some(()).filter(|()| text.contains("restarts_total{cause=\"ended\"}"))
        }) => {}
    }
    put(&maps, "a", "2").await;
    shown(&mut watched, &["a=2"]).await;
}

#[tokio::test]
async fn a_crd_may_be_installed_later() {
    let Some(cluster) = ApiServer::start() else { return };
    let client = cluster.client().await;
    let watches = Watches::with_pace(PACE, &Metrics::new());
    let (mut watched, follow) =
        watches.start::<InferenceWorkerSet>(Api::all(client.clone()), Selector::default());
    let mut tasks = JoinSet::new();
    tasks.spawn(follow);
    let why = eventually("it says what is missing", async || match &watches.report()[0].state {
        WatchState::Waiting { why, .. } => why.clone(),
        state => panic!("{state:?}"),
    });
    let missing = "the CRD inferenceworkersets.kinference.buoyant.io is not installed: install the chart kinference-crds, or what `kinfctl crds` prints";
    assert_eq!(why.await.as_ref(), missing);
    assert!(!watched.is_synced());
    Api::all(client).create(&PostParams::default(), &InferenceWorkerSet::crd()).await.unwrap();
    timeout(PATIENCE, watched.changed()).await.unwrap();
    assert!(watched.is_synced() && watched.all().is_empty());
    assert_eq!(watches.report()[0].state, WatchState::Current);
}
