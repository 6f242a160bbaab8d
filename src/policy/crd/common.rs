//! What several kinds have: references, bounds, costs, a status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{ObjectName, rule};

/// Another resource, of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocalReference {
    /// Its name.
    #[schemars(with = "ObjectName")]
    pub name: String,
}

/// What tokens cost, in any one currency: only the comparison matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TokenCost {
    /// A million tokens of prompts.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub input_per_million: f64,
    /// A million tokens of answers.
    #[schemars(range(min = 0.0, max = 1e9))]
    pub output_per_million: f64,
}

/// From `min` to `max`, both included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = [rule(
    "!has(self.min) || !has(self.max) || self.min <= self.max",
    "`min` can't be more than `max`",
)]))]
pub struct CountRange {
    /// At least.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000_000))]
    pub min: Option<u32>,
    /// At most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000_000))]
    pub max: Option<u32>,
}

/// More than `above` and less than `below`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = [between()]))]
pub struct Bounds {
    /// More than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1e9))]
    pub above: Option<f64>,
    /// Less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1e9))]
    pub below: Option<f64>,
}

/// More than `above` and less than `below`, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1, "x-kubernetes-validations" = [between()]))]
pub struct PercentBounds {
    /// More than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub above: Option<f64>,
    /// Less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub below: Option<f64>,
}

/// Of the values of several workers, the one that counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Statistic {
    /// The least.
    Min,
    /// The mean.
    #[default]
    Mean,
    /// The most.
    Max,
}

/// A statistic over workers that is more than `above` and less than `below`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [either(), between()]))]
pub struct StatisticBounds {
    /// Over the workers.
    pub stat: Statistic,
    /// More than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1e9))]
    pub above: Option<f64>,
    /// Less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1e9))]
    pub below: Option<f64>,
}

/// A statistic over workers that is more than `above` and less than `below`, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [either(), between()]))]
pub struct StatisticPercentBounds {
    /// Over the workers.
    pub stat: Statistic,
    /// More than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub above: Option<f64>,
    /// Less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 100.0))]
    pub below: Option<f64>,
}

fn between() -> serde_json::Value {
    rule(
        "!has(self.above) || !has(self.below) || self.above < self.below",
        "`above` has to be less than `below`",
    )
}

fn either() -> serde_json::Value {
    rule("has(self.above) || has(self.below)", "give `above`, `below` or both")
}

/// What Kinference says of a resource.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceStatus {
    /// The generation that this status is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The generation in force: the last valid one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_generation: Option<i64>,
    /// `Accepted`, `ResolvedRefs`.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
