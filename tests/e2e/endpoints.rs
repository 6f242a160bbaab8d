//! Envoy follows the fleet through endpoint discovery, and keeps what it knows while the server is away.

use futures::future::join_all;
use tokio::time::Instant;

use crate::stack::{Engine, Envoy, Router, Stack, until};

const SAMPLE: &str = "duplex.yaml";
/// Whether the discovery stream is up.
const CONNECTED: &str = "cluster.workerset/local.control_plane.connected_state";

fn engines(n: usize) -> Vec<Engine> {
    (0..n).map(|_| Engine::start(&["--speedup", "50"])).collect()
}

/// What the cluster must hold.
fn healthy(engines: &[Engine]) -> Vec<(String, bool)> {
    let mut all: Vec<_> = engines.iter().map(|engine| (engine.http.clone(), true)).collect();
    all.sort();
    all
}

impl Stack {
    async fn until_endpoints(&self, what: &str, wanted: &[(String, bool)]) {
        until(what, async || (self.envoy.endpoints().await == wanted).then_some(())).await;
    }

    async fn burst(&self) {
        let chats = (0..8).map(|i| async move { self.chat(&format!("burst {i}")).await.status() });
        assert!(join_all(chats).await.iter().all(|status| *status == 200));
    }
}

/// Requests that an engine has answered, as it counts them itself.
async fn answered(engine: &Engine) -> f64 {
    let text = reqwest::get(format!("http://{}/metrics", engine.http)).await.unwrap().text().await.unwrap();
    let counts = text.lines().filter(|line| line.starts_with("vllm:request_success_total"));
    counts.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

#[tokio::test]
async fn the_cluster_follows_the_workers_file() {
    let engines = engines(2);
    let router = Router::start(&engines[..1], "");
    let Some(envoy) = Envoy::start(SAMPLE, &router, &engines).await else { return };
    let stack = Stack { envoy, router, engines, client: reqwest::Client::new() };
    stack.until_endpoints("the first engine is known", &healthy(&stack.engines[..1])).await;
    stack.burst().await;

    stack.router.set_workers(&stack.engines);
    let added = Instant::now();
    let served = until("the added engine serves", async || {
        stack.burst().await;
        (answered(&stack.engines[1]).await > 0.0).then(|| added.elapsed())
    });
    eprintln!("an added worker took traffic after {:?}", served.await);

    stack.router.set_workers(&stack.engines[..1]);
    stack.until_endpoints("the removed engine is gone", &healthy(&stack.engines[..1])).await;
    stack.until_idle().await;
    let before = answered(&stack.engines[1]).await;
    for _ in 0..4 {
        stack.burst().await;
    }
    assert_eq!(answered(&stack.engines[1]).await, before);
}

#[tokio::test]
async fn endpoints_stay_while_the_server_is_away() {
    let engines = engines(2);
    let router = Router::start(&engines, "");
    let Some(envoy) = Envoy::start(SAMPLE, &router, &engines).await else { return };
    let mut stack = Stack { envoy, router, engines, client: reqwest::Client::new() };
    stack.until_endpoints("both engines are known", &healthy(&stack.engines)).await;
    stack.router.kill();
    until("Envoy notices", async || (stack.envoy.stat(CONNECTED).await == Some(0)).then_some(())).await;
    // Beyond several attempts to get an answer.
    let attempts = async || stack.envoy.stat("cluster.kinference.upstream_cx_connect_fail").await;
    let before = attempts().await.unwrap();
    until("Envoy asks on", async || attempts().await.filter(|now| *now >= before + 3)).await;
    assert_eq!(stack.envoy.endpoints().await, healthy(&stack.engines));

    stack.router.set_workers(&stack.engines[1..]);
    stack.router.restart("");
    stack.until_endpoints("what changed meanwhile is known", &healthy(&stack.engines[1..])).await;
    assert_eq!(stack.chat("after").await.status(), 200);
}

#[tokio::test]
async fn envoy_may_start_first() {
    let engines = engines(1);
    let mut router = Router::start(&engines, "");
    router.kill();
    let Some(envoy) = Envoy::start(SAMPLE, &router, &engines).await else { return };
    let mut stack = Stack { envoy, router, engines, client: reqwest::Client::new() };
    assert!(stack.envoy.endpoints().await.is_empty());
    assert_eq!(stack.chat("too early").await.status(), 503);
    stack.router.restart("");
    until("requests are served", async || (stack.chat("now").await.status() == 200).then_some(())).await;
}

/// An engine that fails gets nothing from Envoy's own balancing, but a pick that names it is honoured.
#[tokio::test]
async fn a_failing_engine_is_unhealthy_there() {
    let engines = engines(2);
    let router = Router::start(&engines, "");
    let Some(envoy) = Envoy::start(SAMPLE, &router, &engines).await else { return };
    let mut stack = Stack { envoy, router, engines, client: reqwest::Client::new() };
    stack.until_endpoints("both engines are known", &healthy(&stack.engines)).await;
    stack.engines[0].kill();
    let mut wanted = healthy(&stack.engines);
    let dead = wanted.iter().position(|(at, _)| *at == stack.engines[0].http).unwrap();
    wanted[dead].1 = false;
    stack.until_endpoints("the dead one is unhealthy", &wanted).await;
    for i in 0..4 {
        assert_eq!(stack.chat(&format!("without it {i}")).await.status(), 200);
    }
    stack.engines[0].restart();
    stack.until_endpoints("it is well again", &healthy(&stack.engines)).await;
}
