//! InferencePool: the models that are published, and what is behind each.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{ResourceStatus, TokenCost},
    text::{ObjectName, Word, WorkerSetName, rule, rule_at},
};

/// The models that are published, and what is behind each.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kinference.buoyant.io",
    version = "v1alpha1",
    kind = "InferencePool",
    plural = "inferencepools",
    shortname = "ipool",
    category = "kinference",
    namespaced,
    status = "ResourceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "The models that are published, and what is behind each.",
    printcolumn = r#"{"name": "Models", "type": "string", "jsonPath": ".spec.models[*].name"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status"}"#,
    printcolumn = r#"{"name": "Resolved", "type": "string", "jsonPath": ".status.conditions[?(@.type=='ResolvedRefs')].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].reason", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".models",
    "self.models.all(m, !has(m.aliases) || m.aliases.all(a, !self.models.exists(n, n.name == a)))",
    "an alias can't be the name of a model of the pool",
)]))]
pub struct InferencePoolSpec {
    /// What clients may ask for. All else is answered with 404.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub models: Vec<PublishedModel>,
}

/// A model as clients know it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedModel {
    /// The name that clients ask for.
    #[schemars(with = "Word")]
    pub name: String,
    /// Other names for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(max = 16), extend("x-kubernetes-list-type" = "set"))]
    pub aliases: Vec<String>,
    /// What serves it: each may be picked.
    #[schemars(length(min = 1, max = 32))]
    pub backends: Vec<Backend>,
    /// The tenants that may ask for it. None: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(max = 256), extend("x-kubernetes-list-type" = "set"))]
    pub tenants: Vec<String>,
}

/// A model of a worker set or of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    rule("has(self.workerSet) != has(self.provider)", "give either `workerSet` or `provider`"),
]))]
pub struct Backend {
    /// A model of a worker set. Either this or `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_set: Option<WorkerSetBackend>,
    /// A model of a provider. Either this or `workerSet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<ProviderBackend>,
}

/// A model of a worker set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerSetBackend {
    /// The worker set: an InferenceWorkerSet of the same namespace, or a `[[workerset]]` of the configuration.
    #[schemars(with = "WorkerSetName")]
    pub name: String,
    /// The model, or LoRA adapter, that its engines serve. Unset: the published name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Word>")]
    pub model: Option<String>,
    /// What its tokens cost, where `minimize: Cost` is to know.
    #[serde(default)]
    pub cost: TokenCost,
}

/// A model of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderBackend {
    /// The InferenceProvider, of the same namespace.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// The name of one of its models. Unset: the published name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Word>")]
    pub model: Option<String>,
}
