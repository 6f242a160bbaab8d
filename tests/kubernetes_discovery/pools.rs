//! `discovery.mode = "inference_pool"`: the pods of an InferencePool of the Gateway API Inference Extension.

use k8s_openapi::api::core::v1::Pod;
use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    apiserver::ApiServer,
    objects::Space,
    site::{Server, in_a_second, worker},
};

/// As much of an InferencePool as is needed here.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(
    group = "inference.networking.k8s.io",
    version = "v1",
    kind = "InferencePool",
    namespaced,
    schema = "disabled"
)]
pub struct InferencePoolSpec {
    #[serde(flatten)]
    all: Value,
}

/// The group is protected, so the API server wants to know who approved of the CRD: nobody did of this one.
fn crd() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "inferencepools.inference.networking.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests only"}},
        "spec": {
            "group": "inference.networking.k8s.io", "scope": "Namespaced",
            "names": {"kind": "InferencePool", "plural": "inferencepools", "singular": "inferencepool"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
            }}}]
        }
    })
}

fn pool(app: &str, ports: &[u16]) -> Value {
    let ports: Vec<_> = ports.iter().map(|number| json!({"number": number})).collect();
    json!({"spec": {"selector": {"matchLabels": {"app": app}}, "targetPorts": ports,
        "endpointPickerRef": {"name": "kinference", "port": {"number": 9002}}}})
}

#[tokio::test]
async fn a_pool_s_pods_are_workers_on_each_of_its_ports() {
    let Some(cluster) = ApiServer::find() else { return };
    let space = Space::new(cluster.client().await).await;
    let config = format!(
        "[[workerset]]\nname = \"s\"\nprofile = \"p\"\nkv_block_size = 16\n[workerset.discovery]\n\
         mode = \"inference_pool\"\npool_name = \"pool\"\nnamespace = \"{}\"\n",
        space.name
    );
    let server = Server::start(&cluster.kubeconfig, &config).await;
    space.crd(crd()).await;
    let ready = |ip: &str| {
        json!({"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": "True"}]})
    };
    space.pod("a", json!({"app": "x"}), ready("10.0.0.1")).await;
    space.pod("other", json!({"app": "y"}), ready("10.0.0.2")).await;
    space.put::<InferencePool>("pool", pool("x", &[8000, 8001])).await;
    let both = ["s/a:8000 10.0.0.1:8000 ready", "s/a:8001 10.0.0.1:8001 ready"];
    server.shows(worker, &both).await;

    space.pod("b", json!({"app": "x"}), json!({"phase": "Running", "podIP": "10.0.0.3"})).await;
    let three = ["s/b:8000 10.0.0.3:8000 not_ready", "s/b:8001 10.0.0.3:8001 not_ready"];
    in_a_second("a new pod", server.shows(worker, &[both.as_slice(), &three].concat()).await);
    space.delete::<Pod>("b").await;
    in_a_second("a pod is deleted", server.shows(worker, &both).await);
    space.put::<InferencePool>("pool", pool("y", &[8000])).await;
    in_a_second("another selector", server.shows(worker, &["s/other 10.0.0.2:8000 ready"]).await);
    space.delete::<InferencePool>("pool").await;
    in_a_second("no pool", server.shows(worker, &[]).await);
}
