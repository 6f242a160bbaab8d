//! InferencePolicy: rules for the requests of a pool, in order.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{LocalReference, ResourceStatus},
    rule_match::RuleMatch,
    step::Step,
    text::{Label, rule_at},
};

/// Rules for the requests of a pool. The first that matches a request decides.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kinference.buoyant.io",
    version = "v1alpha1",
    kind = "InferencePolicy",
    plural = "inferencepolicies",
    shortname = "ipol",
    category = "kinference",
    namespaced,
    status = "ResourceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "Rules for the requests of a pool. The first that matches a request decides.",
    printcolumn = r#"{"name": "Pool", "type": "string", "jsonPath": ".spec.poolRef.name"}"#,
    printcolumn = r#"{"name": "Priority", "type": "integer", "jsonPath": ".spec.priority", "priority": 1}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].reason", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InferencePolicySpec {
    /// The InferencePool, of the same namespace, whose requests the rules are for.
    pub pool_ref: LocalReference,
    /// Of several policies of a pool, the rules of the one with the highest priority come first; of equal ones, by name.
    #[serde(default)]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i32,
    /// The rules, in order. Where none matches a request, it goes where its first token is predicted soonest.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub rules: Vec<Rule>,
}

/// Which requests, and what becomes of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".reject",
    "!has(self.reject) || self.onEmpty == 'Reject'",
    "is for `onEmpty: Reject` only",
)]))]
pub struct Rule {
    /// Its name, in decisions and metrics.
    #[schemars(with = "Label")]
    pub name: String,
    /// The requests that it is for. Unset: all.
    #[serde(default, rename = "match", skip_serializing_if = "Option::is_none")]
    pub matches: Option<RuleMatch>,
    /// A condition in CEL, over `request` and `pool`, that has to hold too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub when: Option<String>,
    /// What narrows the candidates, and orders what is left. Without a `minimize`, by predicted time to first token.
    #[schemars(length(min = 1, max = 16))]
    pub steps: Vec<Step>,
    /// What becomes of the request if a step leaves no candidate.
    #[serde(default)]
    pub on_empty: OnEmpty,
    /// How it is rejected, with `onEmpty: Reject`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject: Option<Rejection>,
}

/// What becomes of a request if a step leaves no candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnEmpty {
    /// It is rejected.
    #[default]
    Reject,
    /// The next rule that matches decides.
    NextRule,
    /// The step is passed over.
    Ignore,
}

/// How a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Rejection {
    /// HTTP status.
    #[schemars(range(min = 400, max = 599))]
    pub status: u16,
    /// What the client is told.
    #[schemars(length(min = 1, max = 512))]
    pub message: String,
}

impl Default for Rejection {
    fn default() -> Self {
        Self { status: 503, message: "the policy leaves nothing that may serve this request".into() }
    }
}
