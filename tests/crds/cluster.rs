//! An API server that has our kinds. Spoken to in plain HTTP, so that warnings and messages are seen as they are sent.

use std::time::Duration;

use http::{Method, Request};
use kinference::policy::crd;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::apiserver::ApiServer;

const PATIENCE: Duration = Duration::from_secs(20);
const NAMESPACE: &str = "default";
const STRICT: &str = "fieldValidation=Strict";

/// One.
pub struct Cluster {
    client: kube::Client,
}

impl Cluster {
    /// After our kinds are served.
    pub async fn with_kinds(server: &ApiServer) -> Self {
        let cluster = Self { client: server.client().await };
        for definition in crd::definitions() {
            let name = definition.metadata.name.as_deref().unwrap();
            let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
            let apply = format!("{path}?fieldManager=test&force=true&{STRICT}");
            cluster.ask(Method::PATCH, &apply, &serde_json::to_value(definition).unwrap()).await.unwrap();
            cluster.until(|| cluster.established(&path)).await;
            let listed = format!("{}?limit=1", collection(&definition.spec.names.kind));
            cluster.until(|| async { cluster.ask(Method::GET, &listed, &Value::Null).await.is_ok() }).await;
        }
        cluster
    }

    async fn established(&self, path: &str) -> bool {
        let found = self.ask(Method::GET, path, &Value::Null).await.unwrap();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let non_structural = conditions.iter().find(|c| c["type"] == "NonStructuralSchema");
        assert_eq!(non_structural, None, "{path}");
        conditions.iter().any(|c| c["type"] == "Established" && c["status"] == "True")
    }

    async fn until<F: Future<Output = bool>>(&self, holds: impl Fn() -> F) {
        let deadline = Instant::now() + PATIENCE;
        while !holds().await {
            assert!(Instant::now() < deadline, "it takes too long");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// What discovery says of a kind.
    pub async fn resource(&self, kind: &str) -> Value {
        let path = format!("/apis/{}/{}", crd::GROUP, crd::VERSION);
        let listed = self.ask(Method::GET, &path, &Value::Null).await.unwrap();
        listed["resources"].as_array().unwrap().iter().find(|r| r["kind"] == kind).unwrap().clone()
    }

    /// Creates it without keeping it: what it would be, or what the API server says against it.
    pub async fn create(&self, manifest: &Value) -> Result<Value, String> {
        let path = format!("{}?dryRun=All&{STRICT}", collection(manifest["kind"].as_str().unwrap()));
        let mut manifest = manifest.clone();
        manifest["metadata"]["namespace"] = NAMESPACE.into();
        self.ask(Method::POST, &path, &manifest).await
    }

    /// Status and spec are written separately, conditions by their type.
    pub async fn status_is_apart(&self, mut manifest: Value) {
        let condition = |reason: &str| {
            json!({"type": "Accepted", "status": "True", "reason": reason, "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1})
        };
        manifest["status"] = json!({"conditions": [condition("Ignored")]});
        let objects = collection(manifest["kind"].as_str().unwrap());
        let made = self.ask(Method::POST, &format!("{objects}?{STRICT}"), &manifest).await.unwrap();
        assert_eq!(made.get("status"), None, "status is not written with the object");
        let object = format!("{objects}/{}", manifest["metadata"]["name"].as_str().unwrap());
        let status = json!({
            "apiVersion": manifest["apiVersion"], "kind": manifest["kind"],
            "status": {"observedGeneration": 1, "conditions": [condition("Fine")]},
        });
        let apply = format!("{object}/status?fieldManager=test&{STRICT}");
        let written = self.ask(Method::PATCH, &apply, &status).await.unwrap();
        assert_eq!(written["status"]["conditions"], json!([condition("Fine")]));
        assert_eq!(written["metadata"]["generation"], 1, "a status is no new generation");
        let columns = self.columns(&object).await;
        assert!(columns.contains(&json!("True")), "no column says that it is accepted: {columns:?}");
        self.ask(Method::DELETE, &object, &Value::Null).await.unwrap();
    }

    /// What `kubectl get` shows of it.
    async fn columns(&self, object: &str) -> Vec<Value> {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let request = Request::get(object).header("accept", table).body(Body::empty()).unwrap();
        let answer = self.client.send(request).await.unwrap().into_body().collect_bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        answer["rows"][0]["cells"].as_array().unwrap().clone()
    }

    /// The answer, which comes without a warning, or the message of a refusal.
    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, String> {
        let content =
            if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        let answer = self.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        assert_eq!(answer.headers().get("warning"), None, "{path}");
        let ok = answer.status().is_success();
        let bytes = answer.into_body().collect_bytes().await.unwrap();
        let answer: Value =
            serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into());
        if ok { Ok(answer) } else { Err(answer["message"].as_str().unwrap_or_default().to_owned()) }
    }
}

fn collection(kind: &str) -> String {
    let definition = crd::definitions().iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    format!("/apis/{}/{}/namespaces/{NAMESPACE}/{}", crd::GROUP, crd::VERSION, definition.spec.names.plural)
}
