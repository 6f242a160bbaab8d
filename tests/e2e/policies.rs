//! Policies, from files and from a real API server, through the real Envoy: which pool a request comes to its route says, and
//! who asks an authenticating filter, for which a header mutation stands in.

use std::{fs, path::Path, time::Duration};

use kinference::policy::crd::{GatewayBackend, InferencePool};
use reqwest::Response;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    apiserver::ApiServer,
    cluster::{SET, Space, kubernetes},
    stack::{Engine, Envoy, PATIENCE, Router, adapted, all, until},
};

const POOLS: &[&str] = &["chat", "gate", "nowhere"];
const POLICIES: &str = include_str!("policies.yaml");
/// How soon an edit has to be in force.
const SOON: Duration = Duration::from_secs(1);

/// Two worker sets with an engine each, the server with a file of policies, Envoy.
struct Site {
    envoy: Envoy,
    router: Router,
    client: reqwest::Client,
    dir: tempfile::TempDir,
    _engines: Vec<Engine>,
}

/// A request, before it is sent.
#[derive(Clone, Copy, Default)]
struct Ask<'a> {
    pool: &'a str,
    tenant: &'a str,
    tags: &'a str,
    model: &'a str,
    text: &'a str,
    max_tokens: u32,
}

const ASK: Ask<'static> =
    Ask { pool: "chat", tenant: "", tags: "", model: "standard-model", text: "hello", max_tokens: 4 };

impl Site {
    async fn start() -> Option<Self> {
        // Slow enough for a long answer to hold its share of the cache while a test looks.
        let large = Engine::start(&["--speedup", "2", "--num-blocks", "65", "--max-model-len", "1024"]);
        let small = Engine::start(&["--speedup", "20"]);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("policies.yaml"), POLICIES).unwrap();
        fs::write(dir.path().join("small.toml"), workers_of_small(&small)).unwrap();
        let local = std::slice::from_ref(&large);
        let router = Router::start(local, &configuration(dir.path()));
        let known = |fleet: &Value| {
            fleet["workers"].as_array().is_some_and(|workers| workers.len() == 2)
                && all(fleet, |w| w["kv_events"]["state"] == "synced" && w["engine"] == "vllm")
        };
        router.until("both are known", known).await;
        let envoy = Envoy::launch(&envoy(&router)).await?;
        let client = reqwest::Client::new();
        Some(Self { envoy, router, client, dir, _engines: vec![large, small] })
    }

    async fn ask(&self, ask: Ask<'_>) -> Response {
        send(&self.client, &self.envoy, ask).await
    }

    async fn models(&self, pool: &str, tenant: &str) -> Vec<String> {
        let request = self.client.get(format!("{}/v1/models", self.envoy.url));
        let answer: Value = request
            .header("x-test-pool", pool)
            .header("x-test-tenant", tenant)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let models = answer["data"].as_array().unwrap_or_else(|| panic!("{answer}")).iter();
        models.map(|model| model["id"].as_str().unwrap().to_owned()).collect()
    }

    fn write(&self, text: &str) {
        let (new, path) = (self.dir.path().join("policies.new"), self.dir.path().join("policies.yaml"));
        fs::write(&new, text).unwrap();
        fs::rename(new, path).unwrap();
    }
}

async fn send(client: &reqwest::Client, envoy: &Envoy, ask: Ask<'_>) -> Response {
    let body = json!({"model": ask.model, "max_tokens": ask.max_tokens, "messages": [{"role": "user", "content": ask.text}]});
    let request = client.post(format!("{}/v1/chat/completions", envoy.url));
    let request = request
        .header("x-test-pool", ask.pool)
        .header("x-test-tenant", ask.tenant)
        .header("x-test-tags", ask.tags);
    // What a client says for itself is nothing.
    let request = request.header("x-kinference-tenant", "research").header("x-kinference-pool", "other");
    timeout(PATIENCE, request.json(&body).send()).await.expect("an answer in time").unwrap()
}

fn configuration(dir: &Path) -> String {
    format!(
        "[policy]\nenabled = true\nfiles = [\"{dir}/*.yaml\"]\n[ext_proc]\ntrust_headers = true\n\
         explain_headers = true\n[[workerset]]\nname = \"small\"\nprofile = \"p\"\nkv_block_size = 16\n\
         [workerset.discovery]\nworkers_file = \"{dir}/small.toml\"\n",
        dir = dir.display()
    )
}

fn workers_of_small(engine: &Engine) -> String {
    format!(
        "[[workers]]\nworker_id_str = \"small-0\"\nworker_id_num = 100\nmodel_name = \"tiny\"\n\
         zmq_endpoint = \"{}\"\nreplay_endpoint = \"{}\"\nhttp_url = \"http://{http}\"\n\
         metrics_url = \"http://{http}/metrics\"\n",
        engine.kv_events,
        engine.replay,
        http = engine.http
    )
}

/// The main sample, with a cluster for each worker set.
fn envoy(router: &Router) -> String {
    let text = adapted("duplex.yaml", &router.grpc, &[]);
    let cluster = |text: &str| {
        let from = text.find("    - name: workerset/local").unwrap();
        let to = text.find("    - name: kinference\n").unwrap();
        text[from..to].to_owned()
    };
    let small = cluster(&text)
        .replace("workerset/local", "workerset/small")
        .replace("kinference/local", "kinference/small");
    let text =
        text.replacen("    - name: workerset/local", &format!("{small}    - name: workerset/local"), 1);
    with_pools(text, POOLS)
}

/// With routes that name those pools, and a filter that authenticates.
pub fn with_pools(text: String, pools: &[&str]) -> String {
    let text = swap(
        text,
        "                          - remove_on_match: { key_matcher: { prefix: x-kinference- } }\n",
        "                          - remove_on_match: { key_matcher: { prefix: x-kinference- } }
                          - append: { header: { key: x-kinference-tenant, value: \"%REQ(x-test-tenant)%\" } }
                          - append: { header: { key: x-kinference-tags, value: \"%REQ(x-test-tags)%\" } }\n",
    );
    // One route for each pool, before the sample's.
    let from = text.find("                        - match: { prefix: \"/\" }").unwrap();
    let to = text.find("                http_filters:").unwrap();
    let (route, mut routes) = (text[from..to].to_owned(), String::new());
    for pool in pools {
        let action = "                          route:\n";
        let matched =
            format!("prefix: \"/\", headers: [{{ name: x-test-pool, string_match: {{ exact: {pool} }} }}]");
        let named =
            route.replace("prefix: \"/\"", &matched).replace(action, &format!("{}{action}", route_of(pool)));
        routes += &named;
    }
    text.replacen(&route, &format!("{routes}{route}"), 1)
}

/// What a route says of its pool.
fn route_of(pool: &str) -> String {
    format!(
        "                          typed_per_filter_config:
                            envoy.filters.http.header_mutation:
                              \"@type\": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutationPerRoute
                              mutations:
                                request_mutations:
                                  - append: {{ header: {{ key: x-kinference-pool, value: {pool} }} }}\n"
    )
}

fn swap(text: String, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the sample has no {from}");
    text.replacen(from, to, 1)
}

pub fn header<'r>(response: &'r Response, name: &str) -> &'r str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

pub async fn error(response: Response) -> (u16, String) {
    let status = response.status().as_u16();
    let body: Value = response.json().await.unwrap();
    (status, body["error"]["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_pool_decides_who_is_served_by_what() {
    let Some(site) = Site::start().await else { return };
    names_are_the_pools(&site).await;
    rules_decide(&site).await;
    batch_waits_for_idle_engines(&site).await;
}

async fn names_are_the_pools(site: &Site) {
    for (pool, model) in [("chat", "standard-model"), ("chat", "default"), ("gate", "standard-model")] {
        let answer = site.ask(Ask { pool, model, ..ASK }).await;
        assert_eq!(
            (answer.status().as_u16(), header(&answer, "x-kinference-model")),
            (200, "tiny"),
            "{pool} {model}"
        );
        let body: Value = answer.json().await.unwrap();
        assert_eq!(body["model"], model);
    }
    assert_eq!(site.models("chat", "somebody").await, ["standard-model"]);
    assert_eq!(site.models("gate", "research").await, ["standard-model", "internal-model"]);
    for (model, tenant) in [("tiny", "somebody"), ("internal-model", "somebody")] {
        let (status, message) = error(site.ask(Ask { model, tenant, ..ASK }).await).await;
        assert_eq!(status, 404);
        assert_eq!(message, format!("The model `{model}` does not exist. There are: `standard-model`."));
    }
    assert_eq!(site.ask(Ask { model: "internal-model", tenant: "research", ..ASK }).await.status(), 200);
    let (status, message) = error(site.ask(Ask { pool: "nowhere", ..ASK }).await).await;
    assert_eq!((status, message.as_str()), (503, "The route of this request has no models at the moment."));
}

async fn rules_decide(site: &Site) {
    let simple = site.ask(Ask { tags: "simple", ..ASK }).await;
    assert_eq!(
        [header(&simple, "x-kinference-worker"), header(&simple, "x-kinference-rule")],
        ["small-0", "rules/simple"]
    );
    let other = site.ask(ASK).await;
    assert_eq!(
        [header(&other, "x-kinference-worker"), header(&other, "x-kinference-rule")],
        ["w0", "rules/the-rest"]
    );
    let (status, message) = error(site.ask(Ask { tags: "urgent,secret", ..ASK }).await).await;
    assert_eq!((status, message.as_str()), (451, "Secrets stay where they are."));
}

/// A long answer fills the engine's cache; until it ends, batch is told to come back.
async fn batch_waits_for_idle_engines(site: &Site) {
    let batch = async || site.ask(Ask { tenant: "batch", ..ASK }).await.status().as_u16();
    until("batch is served", async || (batch().await == 200).then_some(())).await;
    let long = site.ask(Ask { tenant: "interactive", text: "on and on", max_tokens: 800, ..ASK });
    tokio::select! {
        answer = long => panic!("too quick: {answer:?}"),
        () = until("batch is turned away", async || (batch().await == 429).then_some(())) => {}
    }
    // The long one was cut off with its connection.
    until("batch is served again", async || (batch().await == 200).then_some(())).await;
}

#[tokio::test]
async fn an_edit_fails_no_request_and_a_broken_one_changes_nothing() {
    let Some(site) = Site::start().await else { return };
    let mut asked = 0;
    let traffic = async {
        loop {
            let answers = (0..4).map(|_| site.ask(Ask { tags: "simple", max_tokens: 1, ..ASK }));
            for answer in futures::future::join_all(answers).await {
                assert_eq!(answer.status(), 200);
                asked += 1;
            }
        }
    };
    let edits = async {
        for round in 0..3 {
            let name = format!("model-{round}");
            site.write(&POLICIES.replace("aliases: [default]", &format!("aliases: [default, {name}]")));
            let started = Instant::now();
            let served = async || {
                let status =
                    site.ask(Ask { model: &name, tags: "simple", max_tokens: 1, ..ASK }).await.status();
                (status == 200).then_some(())
            };
            until("the edit is in force", served).await;
            assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        }
        let refused = "kinference_policy_changes_total{outcome=\"refused\"}";
        site.write(&POLICIES.replace("poolRef", "poolReff"));
        until("it is refused", async || (site.router.metric(refused).await == 1.0).then_some(())).await;
        assert_eq!(
            site.ask(Ask { model: "model-2", tags: "simple", max_tokens: 1, ..ASK }).await.status(),
            200
        );
    };
    tokio::select! {
        () = traffic => {}
        () = edits => {}
    }
    assert!(asked > 10, "{asked}");
}

/// The resources of a cluster: a GatewayBackend names the pool, and an edit is soon in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resources_of_a_cluster_decide() {
    let Some(cluster) = ApiServer::start() else { return };
    let space = Space::new(cluster.client().await).await;
    let engine = Engine::start(&["--speedup", "50"]);
    space.worker_set("p").await;
    space.pod("vllm-0", &engine).await;
    let policy = format!(
        "[policy]\nenabled = true\nnamespace = \"{}\"\n[ext_proc]\ntrust_headers = true\n",
        space.name
    );
    let router = Router::in_cluster(&cluster.kubeconfig, &(kubernetes(&space) + "\n" + &policy));
    router.until("the pod is a worker", |fleet| all(fleet, |w| w["engine"] == "vllm")).await;
    let config = adapted("duplex.yaml", &router.grpc, &[]);
    let config = config
        .replace("workerset/local", &format!("workerset/{SET}"))
        .replace("kinference/local", &format!("kinference/{SET}"));
    let Some(envoy) = Envoy::launch(&with_pools(config, POOLS)).await else { return };

    let client = reqwest::Client::new();
    let asked = async |model: &str| {
        let response = send(&client, &envoy, Ask { pool: "gate", model, max_tokens: 1, ..ASK }).await;
        response.status().as_u16()
    };
    assert_eq!(asked("standard-model").await, 503, "there is no such pool yet");
    let pool = |name: &str| {
        let backend = json!({"workerSet": {"name": SET, "model": "tiny"}});
        json!({"models": [{"name": name, "backends": [backend]}]})
    };
    space.put::<InferencePool>("chat", json!({"spec": pool("standard-model")})).await;
    space.put::<GatewayBackend>("gate", json!({"spec": {"poolRef": {"name": "chat"}}})).await;
    until("it is in force", async || (asked("standard-model").await == 200).then_some(())).await;
    space.put::<InferencePool>("chat", json!({"spec": pool("other-model")})).await;
    let started = Instant::now();
    until("the edit is in force", async || (asked("other-model").await == 200).then_some(())).await;
    assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    assert_eq!(asked("standard-model").await, 404);
    until("its status says so", async || {
        let pool = space.api::<InferencePool>().get("chat").await.unwrap();
        (pool.status?.active_generation == Some(2)).then_some(())
    })
    .await;
}
