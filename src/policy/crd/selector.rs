//! A label selector as our schemas describe it: Kubernetes' own type says nothing of what it accepts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{LabelValue, rule, rule_at};

/// Labels of objects. All that is given has to hold.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule(
    "(has(self.matchLabels) && size(self.matchLabels) > 0) \
     || (has(self.matchExpressions) && size(self.matchExpressions) > 0)",
    "has to name at least one label: an empty selector is every pod",
)]))]
pub(super) struct Selector {
    /// Labels with their values.
    #[schemars(with = "Option<BTreeMap<String, LabelValue>>", extend("maxProperties" = 32))]
    match_labels: Option<BTreeMap<String, String>>,
    /// Conditions on labels.
    #[schemars(length(max = 32))]
    match_expressions: Option<Vec<Requirement>>,
}

/// A condition on a label.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [rule_at(
    ".values",
    "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
    "is required by the operators `In` and `NotIn`, and taken by no other",
)]))]
struct Requirement {
    /// Name of the label.
    #[schemars(length(min = 1, max = 317))]
    key: String,
    /// What it has to be.
    operator: Operator,
    /// The values, with `In` and `NotIn`.
    #[schemars(with = "Option<Vec<LabelValue>>", length(max = 64))]
    values: Option<Vec<String>>,
}

/// What a label has to be.
#[derive(Serialize, Deserialize, JsonSchema)]
enum Operator {
    /// One of the values.
    In,
    /// None of the values.
    NotIn,
    /// There.
    Exists,
    /// Not there.
    DoesNotExist,
}
