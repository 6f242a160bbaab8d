//! Manifests that are as they should be, with all that can be said in them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use kinference::policy::{Resource, crd};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::manifests::{manifest, one, one_of_each};

/// All of them.
pub fn manifests() -> Vec<Value> {
    let more = [
        (
            "InferenceWorkerSet",
            json!({
                "profile": "p", "modelName": "org/model:v1", "kvBlockSize": 32, "renderUrl": "http://render.svc:8000/base",
                "selector": {"matchLabels": {"app": "engine", "example.com/tier": ""}, "matchExpressions": [
                    {"key": "zone", "operator": "In", "values": ["a", "b"]}, {"key": "canary", "operator": "DoesNotExist"},
                ]},
                "ports": {"http": "api"}, "kvEvents": {"source": "Engine"},
            }),
        ),
        (
            "InferenceProvider",
            json!({
                "api": "Anthropic", "host": "api.anthropic.com", "port": 8443, "pathPrefix": "/proxy/v2",
                "models": [
                    {"name": "opus", "upstream": "claude-opus-4", "expectedTtftMs": 250.0,
                     "cost": {"inputPerMillion": 15, "outputPerMillion": 75.5}},
                    {"name": "haiku", "cost": {"inputPerMillion": 0.8}},
                ],
                "credentials": {"mode": "Header", "secretRef": {"name": "anthropic", "key": "api_key"}, "scheme": ""},
            }),
        ),
        (
            "InferencePool",
            json!({"models": [{
                "name": "standard-model", "aliases": ["gpt-4o", "default"], "tenants": ["team-a", "system:serviceaccount:x:y"],
                "backends": [
                    {"workerSet": {"name": "Set of the file", "model": "org/model", "cost": {"inputPerMillion": 0.1}}},
                    {"workerSet": {"name": "qwen"}},
                    {"provider": {"name": "bedrock", "model": "large"}},
                ],
            }]}),
        ),
        (
            "InferencePolicy",
            json!({"poolRef": {"name": "chat"}, "priority": -5, "rules": [{
                "name": "all-that-can-be-matched",
                "match": {
                    "tenants": ["team-a"], "models": ["standard"], "promptTokens": {"min": 1, "max": 8000},
                    "tags": {"any": ["a"], "all": ["b", "c"], "none": ["d"]},
                    "pool": {"readyWorkers": {"max": 3}, "queueLength": {"above": 2},
                             "runningRequests": {"stat": "Min", "below": 8},
                             "kvCacheUsePercent": {"stat": "Max", "above": 50, "below": 99.5}},
                },
                "when": "request.prompt_tokens > 100 && pool.ready_workers >= 1",
                "steps": [
                    {"exclude": {"kind": "Worker", "queueLength": {"above": 2}, "stalenessMs": {"above": 10000}}},
                    {"keep": {"workerSets": ["qwen"], "kvCacheUsePercent": {"below": 70}, "runningRequests": {"below": 64}}},
                    {"prefer": {"models": ["small"], "cachedPercent": {"above": 50}}, "unlessFasterByMs": 500},
                    {"prefer": {"providers": ["bedrock"]}},
                    {"minimize": "Cost", "tolerance": 0.001}, {"minimize": "KVCacheUse"}, {"minimize": "QueueLength"},
                ],
                "reject": {"status": 429},
            }]}),
        ),
    ];
    let more = more.into_iter().map(|(kind, spec)| manifest(kind, &spec));
    one_of_each().into_iter().chain(more).chain(patterns()).chain(samples()).collect()
}

/// The five documented patterns.
fn patterns() -> impl Iterator<Item = Value> {
    let keep = json!({"kind": "Worker", "kvCacheUsePercent": {"below": 70}});
    let rules = [
        json!({"match": {"tags": {"any": ["simple"]}},
               "steps": [{"prefer": {"models": ["small"]}, "unlessFasterByMs": 200}, {"minimize": "PredictedTTFT"}]}),
        json!({"steps": [{"exclude": {"queueLength": {"above": 2}}}, {"prefer": {"kind": "Worker"}},
                         {"minimize": "PredictedTTFT"}]}),
        json!({"match": {"tags": {"any": ["pii"]}},
               "steps": [{"exclude": {"kind": "Provider"}}, {"minimize": "PredictedTTFT"}], "onEmpty": "Reject"}),
        json!({"match": {"tags": {"any": ["batch"]}}, "steps": [{"keep": keep}, {"minimize": "PredictedTTFT"}],
               "onEmpty": "Reject", "reject": {"status": 429, "message": "no idle GPU at the moment"}}),
        json!({"match": {"models": ["standard-model"]}, "steps": [{"minimize": "PredictedTTFT"}], "onEmpty": "Ignore"}),
    ];
    rules.into_iter().map(|mut rule| {
        rule["name"] = "pattern".into();
        let mut policy = one("InferencePolicy");
        policy["spec"]["rules"] = json!([rule]);
        policy
    })
}

/// What an API server gives has to fit the type, or its watch would fail.
pub fn fits_its_type(stored: &Value) {
    fn fits<K: DeserializeOwned>(stored: &Value) {
        serde_json::from_value::<K>(stored.clone()).unwrap_or_else(|why| panic!("{stored}: {why}"));
    }
    match stored["kind"].as_str().unwrap() {
        "GatewayBackend" => fits::<crd::GatewayBackend>(stored),
        "InferencePolicy" => fits::<crd::InferencePolicy>(stored),
        "InferencePool" => fits::<crd::InferencePool>(stored),
        "InferenceProvider" => fits::<crd::InferenceProvider>(stored),
        _ => fits::<crd::InferenceWorkerSet>(stored),
    }
}

/// What was read, as it would be written.
pub fn spec(resource: &Resource) -> Value {
    let spec = match resource {
        Resource::GatewayBackend(one) => serde_json::to_value(&one.spec),
        Resource::InferencePolicy(one) => serde_json::to_value(&one.spec),
        Resource::InferencePool(one) => serde_json::to_value(&one.spec),
        Resource::InferenceProvider(one) => serde_json::to_value(&one.spec),
        Resource::InferenceWorkerSet(one) => serde_json::to_value(&one.spec),
    };
    plain(&spec.unwrap())
}

/// With all numbers alike: the API server writes 1.0 as 1.
pub fn plain(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64().unwrap()),
        Value::Array(items) => items.iter().map(plain).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), plain(field))).collect(),
        other => other.clone(),
    }
}

#[test]
fn every_kind_is_among_them() {
    for kind in crd::kinds() {
        assert!(manifests().iter().any(|manifest| manifest["kind"] == kind), "{kind}");
    }
}

/// Ours among the samples that are delivered.
fn samples() -> Vec<Value> {
    let mut files = Vec::new();
    files_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("config/samples"), &mut files);
    let documents = files.iter().flat_map(|file| {
        let text = fs::read_to_string(file).unwrap();
        serde_saphyr::from_multiple::<Value>(&text).unwrap_or_else(|why| panic!("{}: {why}", file.display()))
    });
    let ours = |document: &Value| {
        document["apiVersion"].as_str().is_some_and(|version| version.starts_with(crd::GROUP))
    };
    documents.filter(ours).collect()
}

fn files_in(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_in(&path, out);
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            out.push(path);
        }
    }
}
