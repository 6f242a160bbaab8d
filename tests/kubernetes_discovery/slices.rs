//! `discovery.mode = "kubernetes"`: EndpointSlices come, change and go.

use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::{
    apiserver::ApiServer,
    objects::{Space, endpoint},
    site::{Server, in_a_second, worker},
};

pub fn service(namespace: &str) -> String {
    format!(
        "[[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = 16\n[workerset.discovery]\n\
         mode = \"kubernetes\"\nservice_name = \"vllm\"\nnamespace = \"{namespace}\"\n"
    )
}

fn generation(fleet: &[Value], name: &str) -> u64 {
    fleet.iter().find(|worker| worker["name"] == name).unwrap()["generation"].as_u64().unwrap()
}

#[tokio::test]
async fn endpoint_slices_are_the_fleet() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.node("node-1").await;
    let server = Server::start(&cluster.kubeconfig, &service(&space.name)).await;
    let (one, two) = (("vllm", "one"), ("vllm", "two"));
    let a = |ready| endpoint(("a", "uid-a"), "10.0.0.1", ready);
    let b = |ready| endpoint(("b", "uid-b"), "10.0.0.2", ready);

    space.slice(one, "IPv4", &[a(true)]).await;
    in_a_second("a new slice", server.shows(worker, &["s/a 10.0.0.1:8000 ready"]).await);
    // Nodes are a watch of their own.
    let first = crate::site::eventually("its node is known", async || {
        Some(server.fleet().await).filter(|fleet| !fleet[0]["topology"]["node_ip"].is_null())
    })
    .await;
    let place = &first[0]["topology"];
    let wanted = json!({"pod_name": "a", "namespace": space.name, "node_name": "node-1", "node_ip": "192.168.1.1",
        "pod_ip": "10.0.0.1", "availability_zone": "zone-a", "instance_type": "gpu.large"});
    assert_eq!(*place, wanted);
    assert!(first[0]["id"].as_u64().unwrap() < 1 << 63);

    // Another slice of the Service, with the same pod in it: as when slices are rearranged.
    space.slice(two, "IPv4", &[a(true), b(true)]).await;
    let both = ["s/a 10.0.0.1:8000 ready", "s/b 10.0.0.2:8000 ready"];
    in_a_second("a second slice", server.shows(worker, &both).await);
    space.slice(("vllm", "six"), "IPv6", &[endpoint(("a", "uid-a"), "fd00::1", true)]).await;
    space.slice(("other", "others"), "IPv4", &[endpoint(("x", "uid-x"), "10.0.0.9", true)]).await;
    space.slice(one, "IPv4", &[]).await;

    // Readiness flaps: nobody is replaced.
    space.slice(two, "IPv4", &[a(false), b(true)]).await;
    in_a_second(
        "not ready",
        server.shows(worker, &["s/a 10.0.0.1:8000 not_ready", "s/b 10.0.0.2:8000 ready"]).await,
    );
    assert_eq!(generation(&server.fleet().await, "a"), generation(&first, "a"));
    for _ in 0..5 {
        let pick = server.pick().await.unwrap();
        assert_eq!(pick.endpoint, "10.0.0.2:8000", "what is not ready gets nothing");
    }
    let mut leaving = a(false);
    leaving["conditions"] = json!({"ready": false, "serving": true, "terminating": true});
    space.slice(two, "IPv4", &[leaving, b(true)]).await;
    server.shows(worker, &["s/a 10.0.0.1:8000 terminating", "s/b 10.0.0.2:8000 ready"]).await;
    space.slice(two, "IPv4", &[a(true), b(true)]).await;
    server.shows(worker, &both).await;
    assert_eq!(generation(&server.fleet().await, "a"), generation(&first, "a"));
    assert_eq!(server.metric("kinference_fleet_changes_total{change=\"removed\"}").await, 0.0);

    // A pod that is replaced at the same address is another worker; the other is not touched.
    let before = server.fleet().await;
    space.slice(two, "IPv4", &[endpoint(("a", "uid-a2"), "10.0.0.1", true), b(true)]).await;
    let took = crate::site::eventually("the pod is replaced", async || {
        let fleet = server.fleet().await;
        (fleet.len() == 2 && generation(&fleet, "a") != generation(&before, "a")).then_some(fleet)
    })
    .await;
    assert_eq!(generation(&took, "b"), generation(&before, "b"));
    let id = |fleet: &[Value]| fleet.iter().find(|w| w["name"] == "a").unwrap()["id"].clone();
    assert_ne!(id(&took), id(&before));

    space.delete::<EndpointSlice>("two").await;
    // Only IPv6 is left.
    in_a_second("a slice is deleted", server.shows(worker, &["s/a [fd00::1]:8000 ready"]).await);
    space.delete::<EndpointSlice>("six").await;
    in_a_second("the last slice is deleted", server.shows(worker, &[]).await);
}
