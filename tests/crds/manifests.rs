//! One manifest of each kind that is as it should be; the bad ones differ from these in one place.

use kinference::policy::crd;
use serde_json::{Value, json};

/// All of them.
pub fn one_of_each() -> Vec<Value> {
    crd::kinds().into_iter().map(one).collect()
}

/// The one of a kind.
pub fn one(kind: &str) -> Value {
    let spec = match kind {
        "InferenceWorkerSet" => json!({
            "profile": "default", "modelName": "qwen", "kvBlockSize": 16, "service": {"name": "engines"},
        }),
        "InferenceProvider" => json!({
            "api": "OpenAI", "host": "api.example.com", "models": [{"name": "large"}],
        }),
        "InferencePool" => json!({"models": [
            {"name": "standard", "aliases": ["usual"], "backends": [{"workerSet": {"name": "qwen"}}]},
            {"name": "small", "backends": [{"workerSet": {"name": "tiny"}}]},
        ]}),
        "InferencePolicy" => json!({
            "poolRef": {"name": "chat"},
            "rules": [{"name": "first", "steps": [{"keep": {"kind": "Worker"}}, {"minimize": "PredictedTTFT"}]}],
        }),
        "GatewayBackend" => json!({"poolRef": {"name": "chat"}}),
        _ => unreachable!("{kind}"),
    };
    manifest(kind, &spec)
}

/// A manifest with that spec.
pub fn manifest(kind: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("{}/{}", crd::GROUP, crd::VERSION),
        "kind": kind,
        "metadata": {"name": "one", "namespace": "default"},
        "spec": spec,
    })
}
