//! A step of a rule: narrows the candidates, or orders them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{Bounds, PercentBounds},
    text::{Reference, Word, rule, rule_at},
};

/// One step: exactly one of `exclude`, `keep`, `prefer` and `minimize`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    rule(
        "[has(self.exclude), has(self.keep), has(self.prefer), has(self.minimize)].exists_one(given, given)",
        "a step is exactly one of `exclude`, `keep`, `prefer` and `minimize`",
    ),
    rule_at(
        ".unlessFasterByMs",
        "!has(self.unlessFasterByMs) || has(self.prefer)",
        "is for a step that is a `prefer`",
    ),
    rule_at(".tolerance", "!has(self.tolerance) || has(self.minimize)", "is for a step that is a `minimize`"),
]))]
pub struct Step {
    /// Takes away the candidates for which all of this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclude: Option<CandidateMatch>,
    /// Keeps only the candidates for which all of this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep: Option<CandidateMatch>,
    /// Keeps only the candidates for which all of this holds, unless there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefer: Option<CandidateMatch>,
    /// With `prefer`: all are kept if one of the others is predicted to give its first token sooner than each preferred
    /// one by more than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 600_000))]
    pub unless_faster_by_ms: Option<u32>,
    /// Orders the candidates, the least first. A second `minimize` orders those that the first holds equal.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Measure")]
    pub minimize: Option<Measure>,
    /// With `minimize`: candidates within this of the least are equal, in the unit of what is minimized. Unset: 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0.0, max = 1e9))]
    pub tolerance: Option<f64>,
}

/// What a step may minimize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Measure {
    /// Predicted milliseconds to the first token.
    #[serde(rename = "PredictedTTFT")]
    PredictedTtft,
    /// Requests that wait; none at a provider.
    QueueLength,
    /// Use of the KV cache, in percent; 0 at a provider.
    #[serde(rename = "KVCacheUse")]
    KvCacheUse,
    /// What the request's tokens cost.
    Cost,
}

/// Which candidates: all that is given has to hold; of a list, one entry. A provider has no load and no cache that are
/// known: what is said of them never holds for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1))]
pub struct CandidateMatch {
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "CandidateKind")]
    pub kind: Option<CandidateKind>,
    /// Of one of these worker sets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Reference>", length(min = 1, max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub worker_sets: Vec<String>,
    /// One of these providers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Reference>", length(min = 1, max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub providers: Vec<String>,
    /// Serving one of these models, by the name that the pool's backends give.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(min = 1, max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub models: Vec<String>,
    /// Requests that wait there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<Bounds>,
    /// Requests that run there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_requests: Option<Bounds>,
    /// Use of its KV cache, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_use_percent: Option<PercentBounds>,
    /// Share of the prompt that it has in its KV cache, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cached_percent: Option<PercentBounds>,
    /// Milliseconds since its load was last known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staleness_ms: Option<Bounds>,
}

/// What a candidate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum CandidateKind {
    /// An engine of a worker set.
    Worker,
    /// An external provider.
    Provider,
}
