//! InferenceWorkerSets come, change and go, beside the worker sets of the configuration.

use std::fs;

use kinference::policy::crd::InferenceWorkerSet;
use serde_json::{Value, json};

use crate::{
    apiserver::ApiServer,
    objects::{Space, endpoint},
    site::{Server, in_a_second, worker},
};

fn enabled(namespace: &str, more: &str) -> String {
    format!("{more}\n[kubernetes]\nenabled = true\nnamespace = \"{namespace}\"\n")
}

fn generation_of(fleet: &[Value], name: &str) -> Value {
    fleet.iter().find(|worker| worker["name"] == name).unwrap()["generation"].clone()
}

#[tokio::test]
async fn worker_sets_follow_their_resources() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    // The server is there first: a CRD that is not installed is waited for.
    let selector = "selector = \"team=a\"\ndiscovery_defaults.http_port = 9000";
    let server = Server::start(&cluster.kubeconfig, &(enabled(&space.name, "") + selector)).await;
    space.worker_set_crd().await;
    for (service, address) in [("one", "10.1.0.1"), ("two", "10.2.0.1")] {
        let pod = endpoint((&format!("pod-{service}"), service), address, true);
        space.slice((service, &format!("{service}-x")), "IPv4", &[pod]).await;
    }
    space.worker_set("ignored", "one", json!({})).await;
    let labelled = json!({"team": "a"});
    let put = async |name: &str, more: Value| {
        let mut spec = json!({"profile": "p", "modelName": "m", "kvBlockSize": 16});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        space.put::<InferenceWorkerSet>(name, json!({"metadata": {"labels": labelled}, "spec": spec})).await;
    };
    put("a", json!({"service": {"name": "one"}})).await;
    server.shows(worker, &["a/pod-one 10.1.0.1:8080 ready"]).await;
    put("b", json!({"service": {"name": "two"}, "ports": {"http": "web"}})).await;
    let both = ["a/pod-one 10.1.0.1:8080 ready", "b/pod-two 10.2.0.1:9000 ready"];
    in_a_second("a new resource", server.shows(worker, &both).await);

    let before = server.fleet().await;
    put("b", json!({"service": {"name": "two"}})).await;
    let altered = ["a/pod-one 10.1.0.1:8080 ready", "b/pod-two 10.2.0.1:8080 ready"];
    in_a_second("a resource is altered", server.shows(worker, &altered).await);
    put("b", json!({"service": {"name": "one"}})).await;
    let moved = [both[0], "b/NAMESPACE/pod-one 10.1.0.1:8080 ready"]
        .map(|line| line.replace("NAMESPACE", &space.name));
    let moved = moved.each_ref().map(String::as_str);
    in_a_second("a resource names another Service", server.shows(worker, &moved).await);

    // What the engine is reached by stays: so does it.
    put("a", json!({"service": {"name": "one"}, "renderUrl": "http://render:8000"})).await;
    // A change that can't be accepted takes nothing away.
    put("a", json!({"profile": "none", "service": {"name": "one"}})).await;
    space.delete::<InferenceWorkerSet>("b").await;
    in_a_second("a resource is deleted", server.shows(worker, &["a/pod-one 10.1.0.1:8080 ready"]).await);
    let after = server.fleet().await;
    assert_eq!(generation_of(&after, "pod-one"), generation_of(&before, "pod-one"));
    // Once it is no longer selected, it is gone.
    space.worker_set("a", "one", json!({})).await;
    let unlabelled = json!({"metadata": {"labels": {"team": null}}});
    let params = kube::api::PatchParams::default();
    let api = space.api::<InferenceWorkerSet>();
    api.patch("a", &params, &kube::api::Patch::Merge(&unlabelled)).await.unwrap();
    server.shows(worker, &[]).await;
}

#[tokio::test]
async fn a_name_is_the_configuration_s_before_a_resource_s_and_an_older_resource_s_before_a_younger_s() {
    let Some(cluster) = ApiServer::find() else { return };
    let (first, second) =
        (Space::new(cluster.client().await).await, Space::new(cluster.client().await).await);
    first.worker_set_crd().await;
    let dir = tempfile::tempdir().unwrap();
    let workers = dir.path().join("workers.toml");
    fs::write(&workers, "[[workers]]\nworker_id_str = \"listed\"\nworker_id_num = 1\nmodel_name = \"m\"\nendpoint = \"10.9.0.1:1\"\n")
        .unwrap();
    for (space, address) in [(&first, "10.1.0.1"), (&second, "10.2.0.1")] {
        space
            .slice(("vllm", "x"), "IPv4", &[endpoint(("pod", &format!("uid-{address}")), address, true)])
            .await;
        space.worker_set("listed-set", "vllm", json!({})).await;
    }
    first.worker_set("shared", "vllm", json!({})).await;
    let listed = format!(
        "[[workerset]]\nname = \"listed-set\"\nprofile = \"p\"\nkv_block_size = 16\n\
         discovery.workers_file = {:?}\n[kubernetes]\nenabled = true\nselector = \"!not-{}\"\n",
        workers.display().to_string(),
        first.name
    );
    let server = Server::start(&cluster.kubeconfig, &listed).await;
    let others = ["listed-set/listed 10.9.0.1:1 ready", "shared/pod 10.1.0.1:8080 ready"];
    server.shows(worker, &others).await;
    // Times have whole seconds.
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    second.worker_set("shared", "vllm", json!({})).await;
    second.worker_set("own", "vllm", json!({})).await;
    let own = [
        "listed-set/listed 10.9.0.1:1 ready",
        "own/pod 10.2.0.1:8080 ready",
        "shared/pod 10.1.0.1:8080 ready",
    ];
    let shown = |worker: &Value| {
        let field = |name: &str| worker[name].as_str().unwrap();
        let name = field("name").rsplit('/').next().unwrap();
        format!("{}/{name} {} {}", field("workerset"), field("endpoint"), field("availability"))
    };
    server.shows(shown, &own).await;
    // Free again, it goes to the one that waits.
    first.delete::<InferenceWorkerSet>("shared").await;
    let passed = [
        "listed-set/listed 10.9.0.1:1 ready",
        "own/pod 10.2.0.1:8080 ready",
        "shared/pod 10.2.0.1:8080 ready",
    ];
    in_a_second("a name passes on", server.shows(shown, &passed).await);
}
