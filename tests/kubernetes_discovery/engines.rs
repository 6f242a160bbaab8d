//! Real engine stand-ins behind pods: what is known of them outlasts whatever does not concern it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use k8s_openapi::api::core::v1::Pod;
use kinference::policy::crd::InferenceWorkerSet;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::{
    apiserver::ApiServer,
    objects::Space,
    site::{Server, eventually},
};

/// A `vllm-sim`; ends with the test.
struct Engine {
    child: Child,
    http: u16,
    /// Its ports, as a container names them.
    ports: Value,
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Engine {
    fn start() -> Self {
        let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer");
        let (listen, socket) = ("127.0.0.1:0", "tcp://127.0.0.1:0");
        let mut child = Command::new(env!("CARGO_BIN_EXE_vllm-sim"))
            .args(["--model", "tiny", "--model-dir", tokenizer])
            .args(["--listen", listen, "--kv-events", socket, "--replay", socket, "--exit-with-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let bound: Value = serde_json::from_str(&line).unwrap();
        let port =
            |name: &str| bound[name].as_str().unwrap().rsplit(':').next().unwrap().parse::<u16>().unwrap();
        let named = |name: &str, port: u16| json!({"name": name, "containerPort": port});
        let ports = json!([
            named("http", port("http")),
            named("kv-events", port("kv_events")),
            named("kv-replay", port("replay"))
        ]);
        Self { child, http: port("http"), ports }
    }

    /// Has it compute, so that it holds blocks.
    async fn warm_up(&self, prompt: &str) {
        let url = format!("http://127.0.0.1:{}/v1/completions", self.http);
        let body = json!({"model": "tiny", "prompt": prompt.repeat(60), "max_tokens": 1});
        let response = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
        assert_eq!(response.status(), 200);
    }
}

fn status(ready: bool) -> Value {
    let ready = if ready { "True" } else { "False" };
    json!({"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": ready}]})
}

async fn pod(space: &Space, name: &str, engine: &Engine) {
    let container = json!({"name": "vllm", "image": "vllm", "ports": engine.ports});
    let content = json!({"metadata": {"labels": {"app": "vllm"}}, "spec": {"containers": [container]}});
    space.put::<Pod>(name, content).await;
    set_ready(space, name, true).await;
}

async fn set_ready(space: &Space, name: &str, ready: bool) {
    let status = json!({"status": status(ready)});
    space.api::<Pod>().patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

fn held(worker: &Value) -> u64 {
    worker["blocks"]["gpu"].as_u64().unwrap()
}

#[tokio::test]
async fn what_an_engine_holds_outlasts_all_that_does_not_concern_it() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.worker_set_crd().await;
    let engines = [Engine::start(), Engine::start()];
    for (name, engine) in ["a", "b"].into_iter().zip(&engines) {
        pod(&space, name, engine).await;
    }
    let put = async |more: Value| {
        let mut spec = json!({"profile": "p", "modelName": "tiny", "kvBlockSize": 16,
            "selector": {"matchLabels": {"app": "vllm"}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        space.put::<InferenceWorkerSet>("s", json!({"spec": spec})).await;
    };
    put(json!({})).await;
    let config = format!(
        "[real][[profile]]\nname = \"q\"\n[kubernetes]\nenabled = true\nnamespace = \"{}\"\n",
        space.name
    );
    let server = Server::start(&cluster.kubeconfig, &config).await;
    let all = async |what: &str, is_so: fn(&Value) -> bool| {
        eventually(what, async || {
            let fleet = server.fleet().await;
            (fleet.len() == 2 && fleet.iter().all(is_so)).then_some(fleet)
        })
        .await
    };
    all("both are followed", |worker| worker["kv_events"]["state"] == "synced").await;
    assert_eq!(server.get("/readyz").await.0, 200);
    for engine in &engines {
        engine.warm_up("a prompt that is long enough for some blocks ").await;
    }
    let before = all("both hold blocks", |worker| held(worker) > 10).await;
    let same = |fleet: &[Value]| {
        for (then, now) in before.iter().zip(fleet) {
            assert_eq!((&then["id"], &then["generation"]), (&now["id"], &now["generation"]));
            assert!(held(now) >= held(then) && now["kv_events"]["state"] == "synced", "{now}");
        }
    };

    // Readiness flaps; the set gets another profile and a render URL; a third pod comes and goes.
    for _ in 0..5 {
        for ready in [false, true] {
            set_ready(&space, "a", ready).await;
            let wanted = if ready { "ready" } else { "not_ready" };
            let fleet = eventually("its readiness is known", async || {
                let fleet = server.fleet().await;
                let is_so = fleet.iter().any(|w| w["name"] == "a" && w["availability"] == wanted);
                is_so.then_some(fleet)
            })
            .await;
            same(&fleet);
        }
    }
    put(json!({"profile": "q", "renderUrl": format!("http://127.0.0.1:{}", engines[0].http)})).await;
    let third = Engine::start();
    pod(&space, "c", &third).await;
    eventually("the third is there", async || (server.fleet().await.len() == 3).then_some(())).await;
    space.delete::<Pod>("c").await;
    same(&all("the third is gone", |_| true).await);
    server.counts(3.0, 1.0).await;
    server.pick().await.unwrap();
}

#[tokio::test]
async fn an_evicted_engine_is_not_ready() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    space.worker_set_crd().await;
    let engine = Engine::start();
    pod(&space, "a", &engine).await;
    // It publishes blocks of 16.
    let spec = json!({"profile": "p", "modelName": "tiny", "kvBlockSize": 32,
        "selector": {"matchLabels": {"app": "vllm"}}});
    space.put::<InferenceWorkerSet>("s", json!({"spec": spec})).await;
    let config = format!("[real][kubernetes]\nenabled = true\nnamespace = \"{}\"\n", space.name);
    let server = Server::start(&cluster.kubeconfig, &config).await;
    let resources = space.api::<InferenceWorkerSet>();
    let ready = async || {
        let status = resources.get("s").await.unwrap().status?;
        let ready = status.conditions.into_iter().find(|condition| condition.type_ == "Ready")?;
        Some((status.workers, status.ready_workers, ready.status, ready.message))
    };
    eventually("it counts", async || ready().await.filter(|(.., status, _)| status == "True")).await;
    engine.warm_up("a prompt that is long enough for some blocks ").await;
    let (workers, ready_workers, _, message) =
        eventually("it counts no more", async || ready().await.filter(|(.., status, _)| status == "False"))
            .await;
    assert_eq!((workers, ready_workers), (1, 0));
    assert!(message.contains("0 of 1; 1 evicted: ") && message.contains("16 tokens"), "{message}");
    assert_eq!(server.fleet().await.len(), 1);
}
