//! What InferenceWorkerSets say of themselves, and which replica writes it.

use std::process::Command;

use k8s_openapi::api::{coordination::v1::Lease, discovery::v1::EndpointSlice};
use kinference::policy::crd::InferenceWorkerSet;
use serde_json::json;

use crate::{
    apiserver::ApiServer,
    objects::{Space, endpoint},
    site::{Server, eventually, worker},
};

/// Waits until the conditions of a resource have those reasons, `!` before one that does not hold, and these counts
/// of workers; the message of the first.
async fn stands(space: &Space, name: &str, reasons: &str, counts: (u32, u32)) -> String {
    let api = space.api::<InferenceWorkerSet>();
    eventually("the status", async || {
        let resource = api.get(name).await.unwrap();
        let status = resource.status?;
        let shown = |c: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
            assert_eq!(c.observed_generation, status.observed_generation);
            format!("{}{}", if c.status == "True" { "" } else { "!" }, c.reason)
        };
        let now = status.conditions.iter().map(shown).collect::<Vec<_>>().join(" ");
        let current = status.observed_generation == resource.metadata.generation;
        let is_so = current && now == reasons && (status.workers, status.ready_workers) == counts;
        is_so.then(|| status.conditions[0].message.clone())
    })
    .await
}

#[tokio::test]
async fn a_resource_says_how_it_stands() {
    let Some(cluster) = ApiServer::find() else { return };
    let (space, other) = (Space::new(cluster.client().await).await, Space::new(cluster.client().await).await);
    space.worker_set_crd().await;
    let label = format!("selector = \"!{}\"", space.name);
    let config = format!(
        "[[workerset]]\nname = \"listed\"\nprofile = \"p\"\nkv_block_size = 16\n[workerset.discovery]\nmode = \"kubernetes\"\n\
         service_name = \"none\"\nnamespace = \"{}\"\n[kubernetes]\nenabled = true\n{label}\n",
        space.name
    );
    let server = Server::start(&cluster.kubeconfig, &config).await;
    let (_, ready) = server.get("/readyz").await;
    assert!(
        ready.contains(&format!("InferenceWorkerSets in all namespaces with labels `!{}`", space.name)),
        "{ready}"
    );
    assert!(ready.contains("EndpointSlices of Service `none`"), "{ready}");
    space.worker_set("good", "vllm", json!({})).await;
    stands(&space, "good", "Accepted !ServiceNotFound !NoReadyWorkers", (0, 0)).await;
    let pods =
        |ready| [endpoint(("a", "uid-a"), "10.0.0.1", ready), endpoint(("b", "uid-b"), "10.0.0.2", false)];
    space.slice(("vllm", "x"), "IPv4", &pods(false)).await;
    stands(&space, "good", "Accepted Resolved !NoReadyWorkers", (2, 0)).await;
    space.slice(("vllm", "x"), "IPv4", &pods(true)).await;
    stands(&space, "good", "Accepted Resolved WorkersReady", (2, 1)).await;
    let fleet = ["good/a 10.0.0.1:8080 ready", "good/b 10.0.0.2:8080 not_ready"];
    server.shows(worker, &fleet).await;

    // One that is wrong from the start, one whose name is in the configuration, one that is younger: nobody else is affected.
    space.worker_set("unknown", "vllm", json!({"profile": "nope"})).await;
    let message = stands(&space, "unknown", "!UnknownProfile !NotAccepted !NotAccepted", (0, 0)).await;
    assert!(message.contains("`nope`") && message.contains("defined: `p`"), "{message}");
    space.worker_set("listed", "vllm", json!({})).await;
    let message = stands(&space, "listed", "!NameConflict !NotAccepted !NotAccepted", (0, 0)).await;
    assert!(
        message.contains(&format!("`{}/listed`", space.name)) && message.contains("[[workerset]]"),
        "{message}"
    );
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    other.worker_set("good", "vllm", json!({})).await;
    let message = stands(&other, "good", "!NameConflict !NotAccepted !NotAccepted", (0, 0)).await;
    let both = [&other, &space].map(|space| format!("InferenceWorkerSet `{}/good`", space.name));
    assert!(both.iter().all(|name| message.contains(name)), "{message}");
    server.shows(worker, &fleet).await;

    // A change that is refused leaves what was, and says so; put right, it is as if nothing had been.
    space.worker_set("good", "vllm", json!({"profile": "nope"})).await;
    let message = stands(&space, "good", "!UnknownProfile Resolved WorkersReady", (2, 1)).await;
    assert!(message.ends_with("what was accepted before stays in force"), "{message}");
    space.worker_set("good", "vllm", json!({})).await;
    stands(&space, "good", "Accepted Resolved WorkersReady", (2, 1)).await;
    assert_eq!(server.metric("kinference_fleet_changes_total{change=\"removed\"}").await, 0.0);
    // The older one goes: the younger takes its name.
    space.delete::<EndpointSlice>("x").await;
    space.delete::<InferenceWorkerSet>("good").await;
    stands(&other, "good", "Accepted !ServiceNotFound !NoReadyWorkers", (0, 0)).await;
}

#[tokio::test]
async fn the_replica_that_leads_writes_and_hands_over_when_it_ends() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.worker_set_crd().await;
    let config = format!(
        "[kubernetes]\nenabled = true\nnamespace = \"{0}\"\n[leader_election]\nenabled = true\nnamespace = \"{0}\"\n\
         lease_duration_secs = 3\nrenew_grace_secs = 2\nretry_secs = 1\n",
        space.name
    );
    let first = Server::start(&cluster.kubeconfig, &config).await;
    let leads = async |server: &Server| server.metric("kinference_kubernetes_leader").await == 1.0;
    eventually("it leads", async || leads(&first).await.then_some(())).await;
    let second = Server::start(&cluster.kubeconfig, &config).await;
    space.worker_set("s", "vllm", json!({})).await;
    stands(&space, "s", "Accepted !ServiceNotFound !NoReadyWorkers", (0, 0)).await;
    // Both route.
    space.slice(("vllm", "x"), "IPv4", &[endpoint(("a", "uid-a"), "10.0.0.1", true)]).await;
    for server in [&first, &second] {
        server.shows(worker, &["s/a 10.0.0.1:8080 ready"]).await;
        server.pick().await.unwrap();
    }
    stands(&space, "s", "Accepted Resolved WorkersReady", (1, 1)).await;
    assert!(leads(&first).await && !leads(&second).await);
    assert_eq!(second.metric("kinference_kubernetes_status_writes_total").await, 0.0);

    let leases = space.api::<Lease>();
    let holder = async || leases.get("bllmp").await.unwrap().spec.unwrap().holder_identity;
    let before = holder().await.unwrap();
    assert!(Command::new("kill").args(["-TERM", &first.pid().to_string()]).status().unwrap().success());
    eventually("the other leads", async || leads(&second).await.then_some(())).await;
    assert_ne!(holder().await.unwrap(), before);
    space.slice(("vllm", "x"), "IPv4", &[endpoint(("a", "uid-a"), "10.0.0.1", false)]).await;
    stands(&space, "s", "Accepted Resolved !NoReadyWorkers", (1, 0)).await;
}
