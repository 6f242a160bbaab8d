//! A fleet that lives in a Kubernetes API server: real requests through Envoy while the server is away.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Namespace, Pod},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kinference::policy::crd::{InferenceWorkerSet, definitions};
use kube::{
    Api, Client, Resource,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    apiserver::ApiServer,
    process,
    stack::{Engine, Envoy, Router, adapted, all, get_json, until},
};

/// The worker set of these tests.
pub const SET: &str = "engines";
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(30);

/// A namespace with our kinds installed.
pub struct Space {
    client: Client,
    pub name: String,
}

impl Space {
    pub async fn new(client: Client) -> Self {
        for definition in definitions() {
            // Another test of the same server may have done so.
            Api::<CustomResourceDefinition>::all(client.clone())
                .create(&PostParams::default(), definition)
                .await
                .ok();
        }
        let name = format!("kinference-test-{:016x}", rand::random::<u64>());
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.clone());
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let space = Self { client, name };
        until("the kinds are served", async || {
            space.api::<InferenceWorkerSet>().list(&ListParams::default()).await.ok()
        })
        .await;
        space
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub async fn put<K>(&self, name: &str, mut content: Value)
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned,
    {
        content["apiVersion"] = json!(K::api_version(&()));
        content["kind"] = json!(K::kind(&()));
        content["metadata"]["name"] = json!(name);
        let params = PatchParams::apply("test").force();
        self.api::<K>().patch(name, &params, &Patch::Apply(&content)).await.unwrap();
    }

    /// Engines with label `app: vllm`, by their named ports.
    pub async fn worker_set(&self, profile: &str) {
        let spec = json!({"profile": profile, "modelName": "tiny", "kvBlockSize": 16,
            "selector": {"matchLabels": {"app": "vllm"}}});
        self.put::<InferenceWorkerSet>(SET, json!({"spec": spec})).await;
    }

    /// The pod that an engine runs in, ready.
    pub async fn pod(&self, name: &str, engine: &Engine) {
        let port = |name: &str, address: &str| {
            let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
            json!({"name": name, "containerPort": port})
        };
        let ports = [
            port("http", &engine.http),
            port("kv-events", &engine.kv_events),
            port("kv-replay", &engine.replay),
        ];
        let spec = json!({"containers": [{"name": "vllm", "image": "vllm", "ports": ports}]});
        self.put::<Pod>(name, json!({"metadata": {"labels": {"app": "vllm"}}, "spec": spec})).await;
        let status = json!({"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}]});
        let params = PatchParams::default();
        self.api::<Pod>()
            .patch_status(name, &params, &Patch::Merge(&json!({"status": status})))
            .await
            .unwrap();
    }
}

/// `[kubernetes]` for that namespace.
pub fn kubernetes(space: &Space) -> String {
    format!("[kubernetes]\nenabled = true\nnamespace = \"{}\"\n", space.name)
}

async fn behind(router: &Router) -> Vec<Value> {
    let ready = get_json(&format!("http://{}/readyz", router.admin)).await.unwrap();
    ready["behind"].as_array().cloned().unwrap_or_default()
}

/// Chats through Envoy until `end`, or until some failed: how many, and what was answered else than 200.
async fn traffic(url: String, end: Instant) -> (usize, Vec<String>) {
    let (client, mut asked, mut failed) = (reqwest::Client::new(), 0, Vec::new());
    while Instant::now() < end && failed.len() < 3 {
        let body = json!({"model": "tiny", "max_tokens": 4, "stream": asked % 2 == 0,
            "messages": [{"role": "user", "content": format!("Question {} of many", asked % 17)}]});
        let sent = client.post(format!("{url}/v1/chat/completions")).json(&body).send().await;
        asked += 1;
        match sent {
            Ok(answer) if answer.status() == 200 => {
                if let Err(error) = answer.bytes().await {
                    failed.push(error.to_string());
                }
            }
            Ok(answer) => {
                failed.push(format!("{} {}", answer.status(), answer.text().await.unwrap_or_default()))
            }
            Err(error) => failed.push(error.to_string()),
        }
    }
    (asked, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_the_api_server_is_dead() {
    let Some(cluster) = ApiServer::start() else { return };
    let space = Space::new(cluster.client().await).await;
    let engines: Vec<_> = (0..3).map(|_| Engine::start(&["--speedup", "50"])).collect();
    space.worker_set("p").await;
    for (i, engine) in engines.iter().enumerate().take(2) {
        space.pod(&format!("vllm-{i}"), engine).await;
    }
    let router = Router::in_cluster(&cluster.kubeconfig, &kubernetes(&space));
    let synced =
        |count| move |f: &Value| f["workers"].as_array().map(Vec::len) == Some(count) && all(f, is_synced);
    router.until("both pods are workers", synced(2)).await;
    let config = adapted("duplex.yaml", &router.grpc, &[])
        .replace("workerset/local", &format!("workerset/{SET}"))
        .replace("kinference/local", &format!("kinference/{SET}"));
    let Some(envoy) = Envoy::launch(&config).await else { return };

    let mut process = process::Process::of(&cluster);
    let end = Instant::now() + AWAY;
    let mut clients = JoinSet::new();
    for _ in 0..3 {
        clients.spawn(traffic(envoy.url.clone(), end + Duration::from_secs(1)));
    }
    process.kill();
    until("the watches are behind", async || (!behind(&router).await.is_empty()).then_some(())).await;
    let ready = reqwest::get(format!("http://{}/readyz", router.admin)).await.unwrap();
    assert_eq!(ready.status(), 200, "it goes on with the workers that it knows");
    tokio::time::sleep_until(end).await;
    process.restart().await;
    let done = clients.join_all().await;
    let (asked, failed) =
        done.into_iter().fold((0, Vec::new()), |(n, f), (asked, failed)| (n + asked, [f, failed].concat()));
    eprintln!("{asked} requests while the API server was dead for {AWAY:?}");
    assert!(failed.is_empty() && asked > 100, "{} of {asked} failed: {failed:?}", failed.len());

    space.pod("vllm-2", &engines[2]).await;
    router.until("a pod that came after is a worker", synced(3)).await;
    until("nothing is behind", async || behind(&router).await.is_empty().then_some(())).await;
}

fn is_synced(worker: &Value) -> bool {
    worker["kv_events"]["state"] == "synced" && worker["engine"] == "vllm"
}
