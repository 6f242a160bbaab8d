//! `match` of a rule: which requests it is for. All that is given has to hold; of a list, one entry.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{CountRange, StatisticBounds, StatisticPercentBounds},
    text::Word,
};

/// The requests that a rule is for: all that is given has to hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1))]
pub struct RuleMatch {
    /// Of one of these tenants.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(min = 1, max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub tenants: Vec<String>,
    /// For one of these models, by the name that the pool publishes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(min = 1, max = 64), extend("x-kubernetes-list-type" = "set"))]
    pub models: Vec<String>,
    /// With and without tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<TagMatch>,
    /// Tokens of the prompt. A request whose tokens are not known does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<CountRange>,
    /// The state of the workers behind the requested model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<PoolMatch>,
}

/// Tags that a request has and has not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1))]
pub struct TagMatch {
    /// One of these at least.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(min = 1, max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub any: Vec<String>,
    /// All of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(min = 1, max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub all: Vec<String>,
    /// None of these.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Word>", length(min = 1, max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub none: Vec<String>,
}

/// The state of workers. Where there is none, a statistic over them never matches.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("minProperties" = 1))]
pub struct PoolMatch {
    /// How many take new requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_workers: Option<CountRange>,
    /// Requests that wait at a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<StatisticBounds>,
    /// Requests that run on a worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_requests: Option<StatisticBounds>,
    /// Use of a worker's KV cache, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_cache_use_percent: Option<StatisticPercentBounds>,
}
