//! InferenceProvider: an endpoint outside the cluster that serves models for money.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    common::{ResourceStatus, TokenCost},
    text::{HeaderName, HostName, ObjectName, PathPrefix, SecretKey, Word, rule, rule_at},
};

/// An endpoint outside the cluster that serves models.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "kinference.buoyant.io",
    version = "v1alpha1",
    kind = "InferenceProvider",
    plural = "inferenceproviders",
    shortname = "iprov",
    category = "kinference",
    namespaced,
    status = "ResourceStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "An endpoint outside the cluster that serves models.",
    printcolumn = r#"{"name": "API", "type": "string", "jsonPath": ".spec.api"}"#,
    printcolumn = r#"{"name": "Host", "type": "string", "jsonPath": ".spec.host"}"#,
    printcolumn = r#"{"name": "Accepted", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type=='Accepted')].reason", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct InferenceProviderSpec {
    /// The API that it speaks. Requests of another API are never sent there: nothing is translated.
    pub api: ProviderApi,
    /// Its host name.
    #[schemars(with = "HostName")]
    pub host: String,
    /// Its port, spoken to over TLS.
    #[serde(default = "https")]
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Put before the path of a request: with `/openai`, `/v1/chat/completions` becomes `/openai/v1/chat/completions`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<PathPrefix>")]
    pub path_prefix: Option<String>,
    /// The models that it may be asked for.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub models: Vec<ProviderModel>,
    /// How requests to it are authorized.
    #[serde(default)]
    pub credentials: Credentials,
}

fn https() -> u16 {
    443
}

/// The API that a provider speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderApi {
    /// OpenAI's: completions and chat completions.
    #[default]
    OpenAI,
    /// Anthropic's: messages.
    Anthropic,
    /// Amazon Bedrock's OpenAI-compatible endpoint: chat completions.
    Bedrock,
}

/// A model of a provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderModel {
    /// What pools call it.
    #[schemars(with = "Word")]
    pub name: String,
    /// What the provider calls it. Unset: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Word>")]
    pub upstream: Option<String>,
    /// Milliseconds to its first token, until requests have shown them.
    #[serde(default = "expected_ttft_ms")]
    #[schemars(range(max = 600_000))]
    pub expected_ttft_ms: u32,
    /// What its tokens cost.
    #[serde(default)]
    pub cost: TokenCost,
}

fn expected_ttft_ms() -> u32 {
    1000
}

/// How requests are authorized.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(extend("x-kubernetes-validations" = [
    rule_at(
        ".secretRef",
        "(self.mode == 'Header') == has(self.secretRef)",
        "is required by `mode: Header`, and taken by no other mode",
    ),
    rule(
        "self.mode == 'Header' || (!has(self.header) && !has(self.scheme))",
        "`header` and `scheme` are of `mode: Header` only",
    ),
]))]
pub struct Credentials {
    /// Who authorizes them.
    pub mode: CredentialMode,
    /// The Secret, of the same namespace, that holds the credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<SecretReference>,
    /// The header that carries it. Unset: `x-api-key` for Anthropic, else `authorization`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<HeaderName>")]
    pub header: Option<String>,
    /// The word before it. Unset: none for Anthropic, else `Bearer`. Empty: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 32))]
    pub scheme: Option<String>,
}

/// Who authorizes requests to a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CredentialMode {
    /// Nobody: the provider wants no credential.
    #[default]
    None,
    /// Kinference, with a header.
    Header,
    /// The proxy, such as Envoy's credential injector or its AWS request signing.
    Proxy,
}

/// A key of a Secret of the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretReference {
    /// The Secret's name.
    #[schemars(with = "ObjectName")]
    pub name: String,
    /// The key in it.
    #[schemars(with = "SecretKey")]
    pub key: String,
}
