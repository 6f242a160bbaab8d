//! Watches while the API server can't be reached, is silent, refuses us, or has forgotten where we were.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{Role, RoleBinding},
};
use kinference::{
    kubernetes::{Pace, Selector, WatchState, Watched, Watches},
    observe::Metrics,
};
use kube::{
    Api, Client, Config,
    api::{DeleteParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::timeout};

use crate::{
    PATIENCE,
    apiserver::ApiServer,
    cluster, eventually,
    fake::{Answer, Fake},
    process,
    proxy::Link,
    watches::{PACE, put, seen, shown},
};

struct Watching {
    watches: Watches,
    watched: Watched<ConfigMap>,
    metrics: Metrics,
    _task: JoinSet<std::convert::Infallible>,
}

fn watch(api: Api<ConfigMap>) -> Watching {
    watch_at(PACE, api)
}

fn watch_at(pace: Pace, api: Api<ConfigMap>) -> Watching {
    let metrics = Metrics::new();
    let watches = Watches::with_pace(pace, &metrics);
    let (watched, follow) = watches.start(api, Selector::default());
    let mut task = JoinSet::new();
    task.spawn(follow);
    Watching { watches, watched, metrics, _task: task }
}

impl Watching {
    fn state(&self) -> WatchState {
        self.watches.report()[0].state.clone()
    }

    async fn behind(&self) -> String {
        eventually("behind", async || match self.state() {
            WatchState::Behind { why, .. } => Some(why.to_string()),
            _ => None,
        })
        .await
    }

    async fn current(&self) {
        eventually("current", async || (self.state() == WatchState::Current).then_some(())).await;
    }

    async fn current_and_unchanged(&self) {
        let mut watched = self.watched.clone();
        tokio::select! {
            () = self.current() => {}
            () = watched.changed() => panic!("{:?}", seen(&watched)),
        }
    }
}

#[tokio::test]
async fn what_is_known_outlasts_a_cut_and_a_silence() {
    let Some(cluster) = ApiServer::find() else { return };
    let direct = cluster.client().await;
    let namespace = cluster::namespace(&direct).await;
    let maps: Api<ConfigMap> = Api::namespaced(direct, &namespace);
    put(&maps, "a", "1").await;
    put(&maps, "b", "1").await;
    let (client, proxy) = cluster::proxied(&cluster).await;
    let mut watching = watch(Api::namespaced(client, &namespace));
    shown(&mut watching.watched, &["a=1", "b=1"]).await;

    for (link, words) in [(Link::Cut, "can't be reached"), (Link::Stalled, "does not answer")] {
        // Nothing changes: nobody hears of it.
        proxy.set(link);
        let why = watching.behind().await;
        assert!(why.contains(words) && why.contains("`watch` on configmaps in namespace"), "{why}");
        assert!(watching.metrics.render().contains("kinference_kubernetes_watches{state=\"behind\"} 1"));
        proxy.set(Link::Up);
        watching.current_and_unchanged().await;
        // What changes under way is there afterwards.
        proxy.set(link);
        watching.behind().await;
        let (gone, new) = if link == Link::Cut { ("a", "c") } else { ("c", "d") };
        maps.delete(gone, &DeleteParams::default()).await.unwrap();
        put(&maps, new, "1").await;
        assert!(seen(&watching.watched).contains(&format!("{gone}=1")));
        proxy.set(Link::Up);
        shown(&mut watching.watched, &["b=1", &format!("{new}=1")]).await;
        watching.current().await;
    }
    assert!(watching.metrics.render().contains("kinference_kubernetes_watch_behind_seconds 0\n"));
}

#[tokio::test]
async fn the_api_server_may_be_killed_and_come_back() {
    let Some(cluster) = ApiServer::start() else { return };
    let mut process = process::Process::of(&cluster);
    let client = cluster.client().await;
    let namespace = cluster::namespace(&client).await;
    let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
    put(&maps, "a", "1").await;
    let mut watching = watch(maps.clone());
    shown(&mut watching.watched, &["a=1"]).await;
    process.kill();
    watching.behind().await;
    // One that starts now waits for the API server.
    let mut late = watch(maps.clone());
    eventually("it says why it waits", async || match late.state() {
        WatchState::Waiting { why, .. } => why,
        state => panic!("{state:?}"),
    })
    .await;
    assert_eq!(seen(&watching.watched), ["a=1"]);
    process.restart().await;
    shown(&mut late.watched, &["a=1"]).await;
    watching.current_and_unchanged().await;
    put(&maps, "a", "2").await;
    shown(&mut watching.watched, &["a=2"]).await;
    shown(&mut late.watched, &["a=2"]).await;
}

/// A client with a token of a service account that nobody has given any right, and the account's name.
async fn powerless(cluster: &ApiServer, admin: &Client, namespace: &str) -> (Client, String) {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("powerless".into());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    let request = k8s_openapi::api::authentication::v1::TokenRequest::default();
    let made = accounts.create_token_request("powerless", &PostParams::default(), &request).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    cluster.kubeconfig_with_token(&made.status.unwrap().token, &path);
    let kubeconfig = Kubeconfig::read_from(&path).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    (Client::try_from(config).unwrap(), "powerless".into())
}

#[tokio::test]
async fn a_refusal_says_what_to_grant() {
    let Some(cluster) = ApiServer::find() else { return };
    let admin = cluster.client().await;
    let namespace = cluster::namespace(&admin).await;
    let (client, account) = powerless(&cluster, &admin, &namespace).await;
    let mut watching = watch(Api::namespaced(client, &namespace));
    let needs =
        |verb: &str| format!("Kinference needs `{verb}` on configmaps in namespace `{namespace}`: 403 ");
    let why = eventually("it says what it needs", async || match watching.state() {
        WatchState::Waiting { why, .. } => why,
        state => panic!("{state:?}"),
    });
    let why = why.await;
    assert!(why.contains(&needs("list")), "{why}");
    assert!(
        watching
            .metrics
            .render()
            .contains("kinference_kubernetes_watch_errors_total{kind=\"forbidden\",verb=\"list\"}")
    );

    let roles: Api<Role> = Api::namespaced(admin.clone(), &namespace);
    let role = |verbs: &[&str]| -> Role {
        let rule = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs});
        serde_json::from_value(json!({"metadata": {"name": "reader"}, "rules": [rule]})).unwrap()
    };
    roles.create(&PostParams::default(), &role(&["list"])).await.unwrap();
    let binding: RoleBinding = serde_json::from_value(json!({"metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}]}))
    .unwrap();
    Api::namespaced(admin.clone(), &namespace).create(&PostParams::default(), &binding).await.unwrap();
    let why = watching.behind().await;
    assert!(why.contains(&needs("watch")), "{why}");
    assert!(watching.watched.is_synced());
    roles.replace("reader", &PostParams::default(), &role(&["list", "watch"])).await.unwrap();
    watching.current().await;
    let maps: Api<ConfigMap> = Api::namespaced(admin, &namespace);
    put(&maps, "a", "1").await;
    shown(&mut watching.watched, &["a=1"]).await;
}

fn object(name: &str, version: u32) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"v": version.to_string()},
        "metadata": {"name": name, "namespace": "x", "resourceVersion": version.to_string()}})
}

fn list(version: u32, items: &[Value]) -> Answer {
    Answer::Json(200, json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}))
}

fn gone() -> Value {
    json!({"kind": "Status", "status": "Failure", "reason": "Expired", "message": "too old", "code": 410})
}

#[tokio::test]
async fn a_forgotten_version_makes_a_new_list() {
    let fake = Fake::start(|path, before| match (path.contains("watch=true"), before) {
        (false, 0) => list(10, &[object("a", 1), object("b", 2)]),
        // Said within the stream.
        (true, 0) => Answer::Lines(
            vec![
                json!({"type": "MODIFIED", "object": object("a", 11)}),
                json!({"type": "ERROR", "object": gone()}),
            ],
            true,
        ),
        (false, 1) => list(20, &[object("a", 11), object("c", 3)]),
        // Said instead of it.
        (true, 1) => Answer::Json(410, gone()),
        (false, 2) => list(30, &[object("a", 11), object("c", 3)]),
        (true, _) => Answer::Lines(Vec::new(), true),
        (false, _) => panic!("{path}"),
    });
    let fake = fake.await;
    let mut watching = watch(Api::namespaced(fake.client.clone(), "x"));
    shown(&mut watching.watched, &["a=11", "c=3"]).await;
    let third = async || fake.asked().iter().any(|path| path.contains("resourceVersion=30")).then_some(());
    tokio::select! {
        () = eventually("the third watch", third) => {}
        () = watching.watched.changed() => panic!("the same list anew is no change"),
    }
    assert_eq!(watching.state(), WatchState::Current, "it was never behind");
    assert!(watching.metrics.render().contains("restarts_total{cause=\"expired\"} 2\n"));
}

fn bookmark(version: u32) -> Value {
    let metadata = json!({"resourceVersion": version.to_string()});
    json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}})
}

/// A database that was restored from a backup gives the same versions to other objects, and is silent until it has got as
/// far as it was.
#[tokio::test]
async fn a_server_that_is_behind_us_is_listed_anew() {
    // The connection breaks; the API server ends the watch, too soon; it says an older version.
    let breaks: [fn() -> Answer; 4] = [
        || Answer::Json(503, json!({"kind": "Status", "message": "restored", "code": 503})),
        || Answer::Lines(Vec::new(), false),
        || Answer::Lines(vec![bookmark(7)], true),
        || Answer::Lines(vec![json!({"type": "ADDED", "object": object("c", 7)})], true),
    ];
    for how in breaks {
        let fake = Fake::start(move |path, before| match (path.contains("watch=true"), before) {
            (false, 0) => list(10, &[object("a", 3), object("b", 2)]),
            (false, _) => {
                let mut other = object("a", 3);
                other["data"]["v"] = json!("other");
                list(5, &[other])
            }
            (true, 0) => how(),
            (true, _) => Answer::Lines(Vec::new(), true),
        });
        let fake = fake.await;
        let mut watching = watch(Api::namespaced(fake.client.clone(), "x"));
        shown(&mut watching.watched, &["a=other"]).await;
        let follows =
            async || fake.asked().iter().any(|path| path.contains("resourceVersion=5")).then_some(());
        eventually("it follows from there", follows).await;
        watching.current().await;
    }
}

/// One that ends its watches in time and says nothing is asked now and then; a server that has got as far is not listed.
#[tokio::test]
async fn a_silent_server_is_asked_how_far_it_is() {
    let fake = Fake::start(|path, before| match (path.contains("watch=true"), before) {
        (false, 0) => list(10, &[object("a", 1)]),
        (false, 1) => list(10, &[]),
        (false, _) => list(4, &[]),
        (true, _) => Answer::Brief(Duration::from_millis(1_100)),
    });
    let fake = fake.await;
    let pace = Pace { watch: Duration::from_secs(1), check: Duration::ZERO, ..PACE };
    let mut watching = watch_at(pace, Api::namespaced(fake.client.clone(), "x"));
    shown(&mut watching.watched, &["a=1"]).await;
    shown(&mut watching.watched, &[]).await;
    let asked = fake.asked();
    let kinds: Vec<_> = asked
        .iter()
        .map(|path| {
            if path.contains("limit=1&") || path.ends_with("limit=1") {
                "check"
            } else if path.contains("watch=true") {
                "watch"
            } else {
                "list"
            }
        })
        .collect();
    assert_eq!(kinds[..6], ["list", "watch", "check", "watch", "check", "list"], "{asked:?}");
}

/// A list in pages whose rest has expired is asked for whole; readers see none of it in between.
#[tokio::test]
async fn pages_may_expire() {
    let fake = Fake::start(|path, _| {
        if path.contains("watch=true") {
            Answer::Lines(Vec::new(), true)
        } else if path.contains("continue=next") {
            Answer::Json(410, gone())
        } else if path.contains("limit=500") {
            let metadata = json!({"resourceVersion": "5", "continue": "next"});
            Answer::Json(200, json!({"metadata": metadata, "items": [object("a", 1)]}))
        } else {
            list(6, &[object("a", 1), object("b", 2)])
        }
    });
    let fake = fake.await;
    let mut watching = watch(Api::namespaced(fake.client.clone(), "x"));
    timeout(PATIENCE, watching.watched.changed()).await.unwrap();
    assert_eq!(seen(&watching.watched), ["a=1", "b=2"]);
}

/// One object that can't be read harms no other, and stays what it was.
#[tokio::test]
async fn one_bad_object_harms_no_other() {
    let bad = json!({"metadata": {"name": "a", "namespace": "x", "resourceVersion": "9"}, "data": "none"});
    let events = [
        json!({"type": "MODIFIED", "object": bad}),
        json!({"type": "ADDED", "object": object("c", 10)}),
        json!({"type": "BOOKMARK", "object": {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "40"}}}),
    ];
    let fake = Fake::start(move |path, before| match (path.contains("watch=true"), before) {
        (false, 0) => list(5, &[object("a", 1), object("b", 2)]),
        (true, 0) => Answer::Lines(events.to_vec(), false),
        (false, _) => list(40, &[]),
        (true, _) => Answer::Lines(Vec::new(), true),
    });
    let fake = fake.await;
    let mut watching = watch(Api::namespaced(fake.client.clone(), "x"));
    shown(&mut watching.watched, &["a=1", "b=2", "c=10"]).await;
    assert!(
        watching
            .metrics
            .render()
            .contains("kinference_kubernetes_watch_errors_total{kind=\"unreadable\",verb=\"watch\"} 1\n")
    );
    let resumed = async || fake.asked().iter().any(|path| path.contains("resourceVersion=40")).then_some(());
    eventually("it goes on from the bookmark", resumed).await;
}

#[tokio::test]
async fn a_watch_that_is_dropped_is_off_the_report() {
    let fake = Fake::start(|_, _| list(1, &[])).await;
    let watches = Watches::with_pace(PACE, &Metrics::new());
    let (watched, follow) = watches.start::<ConfigMap>(Api::all(fake.client.clone()), Selector::default());
    assert_eq!(watches.report().len(), 1);
    drop(follow);
    assert_eq!(watches.report(), []);
    let mut end = watched.clone();
    assert!(timeout(Duration::from_millis(20), end.changed()).await.is_err(), "it waits for ever");
}
