//! The API server goes away under traffic: routing goes on with the last known fleet, and what was missed is caught up with.

use std::{path::PathBuf, time::Duration};

use kube::config::Kubeconfig;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    apiserver::ApiServer,
    objects::{Space, endpoint},
    proxy::{Link, Proxy},
    site::{Server, eventually, worker},
};

/// A kubeconfig in `dir` that leads to the cluster through a proxy.
async fn proxied(cluster: &ApiServer, dir: &std::path::Path) -> (PathBuf, Proxy) {
    let mut kubeconfig = serde_json::to_value(Kubeconfig::read_from(&cluster.kubeconfig).unwrap()).unwrap();
    let server = &mut kubeconfig["clusters"][0]["cluster"]["server"];
    let url: reqwest::Url = server.as_str().unwrap().parse().unwrap();
    let to = (url.host_str().unwrap(), url.port_or_known_default().unwrap());
    let proxy = Proxy::start(tokio::net::lookup_host(to).await.unwrap().next().unwrap()).await;
    *server = json!(format!("https://{}", proxy.addr));
    let path = dir.join("kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    (path, proxy)
}

async fn behind(server: &Server) -> (u16, Vec<String>) {
    let (status, text) = server.get("/readyz").await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    (status, serde_json::from_value(answer["behind"].clone()).unwrap())
}

/// Traffic for that long; no request may fail.
async fn traffic(server: &Server, how_long: Duration) -> usize {
    let (deadline, mut picks) = (Instant::now() + how_long, 0);
    while Instant::now() < deadline {
        let pick = server.pick().await.unwrap_or_else(|error| panic!("pick {picks}: {error}"));
        assert!(pick.endpoint.starts_with("10.0.0."), "{pick:?}");
        picks += 1;
        sleep(Duration::from_millis(2)).await;
    }
    picks
}

async fn gone_for(cut: Duration, stalled: Duration) {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.worker_set_crd().await;
    let pods = |n: usize| -> Vec<Value> {
        let pod = |n| endpoint((&format!("p{n}"), &format!("u{n}")), &format!("10.0.0.{}", n + 1), true);
        (0..n).map(pod).collect()
    };
    space.slice(("vllm", "x"), "IPv4", &pods(2)).await;
    space.worker_set("s", "vllm", json!({})).await;
    let dir = tempfile::tempdir().unwrap();
    let (kubeconfig, proxy) = proxied(&cluster, dir.path()).await;

    // Not there at the start: it starts all the same, and says why it is not ready.
    proxy.set(Link::Cut);
    let kubernetes = format!("[kubernetes]\nenabled = true\nnamespace = \"{}\"\n", space.name);
    let server = Server::start(&kubeconfig, &kubernetes).await;
    let (status, why) = eventually("it says what it waits for", async || {
        Some(behind(&server).await).filter(|(_, why)| why.iter().any(|why| why.contains("can't be reached")))
    })
    .await;
    assert_eq!(status, 503);
    assert!(
        why.iter().any(|why| why.contains("inferenceworkersets.kinference.buoyant.io in namespace")),
        "{why:?}"
    );
    proxy.set(Link::Up);
    let two = ["s/p0 10.0.0.1:8080 ready", "s/p1 10.0.0.2:8080 ready"];
    server.shows(worker, &two).await;
    eventually("nothing is behind", async || behind(&server).await.1.is_empty().then_some(())).await;
    let before = server.fleet().await;

    for (link, how_long, pods_after) in [(Link::Cut, cut, 3), (Link::Stalled, stalled, 1)] {
        proxy.set(link);
        space.slice(("vllm", "x"), "IPv4", &pods(pods_after)).await;
        let picks = traffic(&server, how_long).await;
        eprintln!("{link:?} for {how_long:?}: {picks} picks");
        assert!(picks > 100);
        if link == Link::Cut {
            let (status, why) = behind(&server).await;
            assert_eq!((status, why.len()), (200, 3), "{why:?}");
            assert_eq!(server.fleet().await.len(), before.len(), "the last known fleet");
        }
        proxy.set(Link::Up);
        let begun = Instant::now();
        eventually("what was missed is there", async || {
            traffic(&server, Duration::from_millis(20)).await;
            (server.fleet().await.len() == pods_after).then_some(())
        })
        .await;
        eprintln!("caught up after {:?}", begun.elapsed());
        eventually("nothing is behind", async || behind(&server).await.1.is_empty().then_some(())).await;
    }
    let after = server.fleet().await;
    assert_eq!(after[0]["generation"], before.iter().find(|w| w["name"] == "p0").unwrap()["generation"]);
}

#[tokio::test]
async fn requests_are_served_while_the_api_server_is_away() {
    gone_for(Duration::from_secs(10), Duration::from_secs(2)).await;
}

#[tokio::test]
#[ignore = "takes a minute and more"]
async fn requests_are_served_while_the_api_server_is_away_for_long() {
    gone_for(Duration::from_secs(30), Duration::from_secs(45)).await;
}
