//! InferenceWorkerSet: engines that are alike, found through a Service or by labels.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    selector::Selector,
    text::{HttpUrl, Label, PortName, Word, rule},
};

/// Engines that are alike: same model, same engine, same KV block size.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kinference.buoyant.io",
    version = "v1alpha1",
    kind = "InferenceWorkerSet",
    plural = "inferenceworkersets",
    shortname = "iws",
    category = "kinference",
    namespaced,
    status = "InferenceWorkerSetStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Engines that are alike: same model, same engine, same KV block size.",
    printcolumn = r#"{"name": "Model", "type": "string", "jsonPath": ".spec.modelName"}"#,
    printcolumn = r#"{"name": "Profile", "type": "string", "jsonPath": ".spec.profile"}"#,
    printcolumn = r#"{"name": "Workers", "type": "integer", "jsonPath": ".status.workers"}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.readyWorkers"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].reason", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    rule("has(self.service) != has(self.selector)", "give either `service` or `selector`"),
]))]
pub struct InferenceWorkerSetSpec {
    /// Name of a `[[profile]]` in Kinference's configuration.
    #[schemars(length(min = 1, max = 253))]
    pub profile: String,
    /// The model that the engines serve, until they have said so themselves.
    #[schemars(with = "Word")]
    pub model_name: String,
    /// Tokens in a block of the KV events that these engines publish.
    #[schemars(range(min = 1, max = 65536))]
    pub kv_block_size: u32,
    /// Where prompts are rendered, instead of at the engine itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<HttpUrl>")]
    pub render_url: Option<String>,
    /// The Service, of the same namespace, whose endpoints are the engines. Either this or `selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceReference>,
    /// The pods, of the same namespace, that are the engines. Either this or `service`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Selector>")]
    pub selector: Option<LabelSelector>,
    /// The names of the engines' ports. Where no port has such a name, that of `[kubernetes.discovery_defaults]` is used;
    /// `ResolvedRefs` says so of a name that is given here.
    #[serde(default)]
    pub ports: PortNames,
    /// How the engines' KV events are followed.
    #[serde(default)]
    pub kv_events: KvEventsSpec,
}

/// A Service of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceReference {
    /// Its name.
    #[schemars(with = "Label")]
    pub name: String,
}

/// Names of ports. One that a pod does not have is taken from `[kubernetes.discovery_defaults]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PortNames {
    /// The engine's HTTP port.
    #[schemars(with = "PortName")]
    pub http: String,
    /// Where it publishes KV events.
    #[schemars(with = "PortName")]
    pub kv_events: String,
    /// Where it replays them.
    #[schemars(with = "PortName")]
    pub replay: String,
}

impl Default for PortNames {
    fn default() -> Self {
        Self { http: "http".into(), kv_events: "kv-events".into(), replay: "kv-replay".into() }
    }
}

/// How KV events are followed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KvEventsSpec {
    /// Where their sockets are.
    pub source: KvEventSource,
    /// Data-parallel ranks of each engine, each with sockets of its own. With `source: Ports`, rank N publishes on
    /// the named port plus N, and replays on that of `replay` plus N: these two must be at least as many ports apart as
    /// there are ranks, such as 5557 and 5657. With `source: Engine` the engine says.
    #[schemars(range(min = 1, max = 64))]
    pub ranks: u32,
}

impl Default for KvEventsSpec {
    fn default() -> Self {
        Self { source: KvEventSource::default(), ranks: 1 }
    }
}

/// Where the sockets of KV events are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum KvEventSource {
    /// On the named ports.
    #[default]
    Ports,
    /// Where the engine says: at its `/kv_event_sources`.
    Engine,
}

/// What Kinference says of a worker set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct InferenceWorkerSetStatus {
    /// The generation that this status is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Engines found.
    pub workers: u32,
    /// Of these, the ones that take new requests.
    pub ready_workers: u32,
    /// `Accepted`, `ResolvedRefs`, `Ready`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
