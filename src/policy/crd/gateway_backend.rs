//! GatewayBackend: what an HTTPRoute refers to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::common::LocalReference;

/// What an HTTPRoute refers to, for requests that a pool is to serve.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kinference.buoyant.io",
    version = "v1alpha1",
    kind = "GatewayBackend",
    plural = "gatewaybackends",
    shortname = "gwb",
    category = "kinference",
    namespaced,
    status = "GatewayBackendStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "What an HTTPRoute refers to, for requests that a pool is to serve.",
    printcolumn = r#"{"name": "Pool", "type": "string", "jsonPath": ".spec.poolRef.name"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status"}"#,
    printcolumn = r#"{"name": "Resolved", "type": "string", "jsonPath": ".status.conditions[?(@.type=='ResolvedRefs')].status"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GatewayBackendSpec {
    /// The InferencePool, of the same namespace, that serves the requests.
    pub pool_ref: LocalReference,
}

/// What Kinference says of a backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayBackendStatus {
    /// The generation that this status is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`, `ResolvedRefs`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
