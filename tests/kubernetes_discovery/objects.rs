//! Objects of the API server that these tests make, and how they are put there.

use std::fmt::Debug;

use k8s_openapi::{
    NamespaceResourceScope, Resource as _,
    api::{
        core::v1::{Namespace, Node, Pod},
        discovery::v1::EndpointSlice,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kinference::policy::crd::{InferenceWorkerSet, definitions};
use kube::{
    Api, Client, CustomResourceExt, Resource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::site::eventually;

/// A kind in a namespace.
pub trait Kind:
    Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned
        + Serialize
{
}

/// A namespace that only one test knows.
pub struct Space {
    pub client: Client,
    pub name: String,
}

impl Space {
    pub async fn new(client: Client) -> Self {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(format!("kinference-test-{:016x}", rand::random::<u64>()));
        let made = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await;
        let name = made.unwrap().metadata.name.unwrap();
        Self { client, name }
    }

    pub fn api<K: Kind>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    /// Makes an object what `content` says, whether it was there or not.
    pub async fn put<K: Kind>(&self, name: &str, mut content: Value) {
        content["apiVersion"] = json!(K::api_version(&()));
        content["kind"] = json!(K::kind(&()));
        content["metadata"]["name"] = json!(name);
        let params = PatchParams::apply("test").force();
        self.api::<K>().patch(name, &params, &Patch::Apply(&content)).await.unwrap();
    }

    pub async fn delete<K: Kind>(&self, name: &str) {
        self.api::<K>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// A slice of Service `service`.
    pub async fn slice(&self, (service, name): (&str, &str), family: &str, endpoints: &[Value]) {
        let content = json!({
            "metadata": {"labels": {"kubernetes.io/service-name": service}},
            "addressType": family, "endpoints": endpoints,
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
        });
        self.put::<EndpointSlice>(name, content).await;
    }

    /// A pod with that status, which only a kubelet writes otherwise.
    pub async fn pod(&self, name: &str, labels: Value, status: Value) {
        let container =
            json!({"name": "vllm", "image": "vllm", "ports": [{"name": "http", "containerPort": 8080}]});
        let content = json!({"metadata": {"labels": labels}, "spec": {"nodeName": "node-1", "containers": [container]}});
        self.put::<Pod>(name, content).await;
        let status = json!({"apiVersion": "v1", "kind": "Pod", "status": status});
        let params = PatchParams::default();
        self.api::<Pod>().patch_status(name, &params, &Patch::Merge(&status)).await.unwrap();
    }

    pub async fn node(&self, name: &str) {
        let content = json!({"apiVersion": Node::API_VERSION, "kind": Node::KIND, "metadata": {"name": name, "labels": {
            "topology.kubernetes.io/zone": "zone-of-node", "node.kubernetes.io/instance-type": "gpu.large"}}});
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&content)).await.unwrap();
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.168.1.1"}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// The CRD of InferenceWorkerSets.
    pub async fn worker_set_crd(&self) {
        let name = InferenceWorkerSet::crd_name();
        let ours = definitions().iter().find(|crd| crd.metadata.name.as_deref() == Some(name)).unwrap();
        self.crd(serde_json::to_value(ours).unwrap()).await;
    }

    /// A CRD, in service.
    pub async fn crd(&self, crd: Value) {
        let crds = Api::<CustomResourceDefinition>::all(self.client.clone());
        let name = crd["metadata"]["name"].as_str().unwrap().to_owned();
        crds.patch(&name, &PatchParams::apply("test").force(), &Patch::Apply(&crd)).await.unwrap();
        eventually("the CRD is in service", async || {
            let crd = crds.get(&name).await.unwrap();
            let conditions = crd.status?.conditions?;
            conditions.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(())
        })
        .await;
    }

    /// An InferenceWorkerSet over Service `service`, with whatever else `more` says.
    pub async fn worker_set(&self, name: &str, service: &str, more: Value) {
        let mut spec =
            json!({"profile": "p", "modelName": "m", "kvBlockSize": 16, "service": {"name": service}});
        for (key, value) in more.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        self.put::<InferenceWorkerSet>(name, json!({"spec": spec})).await;
    }
}

/// An endpoint that stands for a pod.
pub fn endpoint((pod, uid): (&str, &str), address: &str, ready: bool) -> Value {
    json!({"addresses": [address], "nodeName": "node-1", "zone": "zone-a",
        "conditions": {"ready": ready, "serving": ready, "terminating": false},
        "targetRef": {"kind": "Pod", "name": pod, "uid": uid}})
}
