//! The five kinds of `kinference.buoyant.io/v1alpha1`, as they are written in YAML.
//!
//! The schemas of the CRDs are generated from these types: their doc comments are the descriptions that users read
//! with `kubectl explain`.

mod common;
mod definitions;
mod gateway_backend;
mod policy;
mod pool;
mod provider;
mod rule_match;
mod selector;
mod step;
mod text;
mod worker_set;

pub use common::{
    Bounds, CountRange, LocalReference, PercentBounds, ResourceStatus, Statistic, StatisticBounds,
    StatisticPercentBounds, TokenCost,
};
pub use definitions::{UnknownKind, definitions, kinds, write_yaml, yaml};
pub use gateway_backend::{GatewayBackend, GatewayBackendSpec, GatewayBackendStatus};
pub use policy::{InferencePolicy, InferencePolicySpec, OnEmpty, Rejection, Rule};
pub use pool::{
    Backend, InferencePool, InferencePoolSpec, ProviderBackend, PublishedModel, WorkerSetBackend,
};
pub use provider::{
    CredentialMode, Credentials, InferenceProvider, InferenceProviderSpec, ProviderApi, ProviderModel,
    SecretReference,
};
pub use rule_match::{PoolMatch, RuleMatch, TagMatch};
pub use step::{CandidateKind, CandidateMatch, Measure, Step};
pub(super) use text::object_name;
pub use worker_set::{
    InferenceWorkerSet, InferenceWorkerSetSpec, InferenceWorkerSetStatus, KvEventSource, KvEventsSpec,
    PortNames, ServiceReference,
};

/// Group of the resources.
pub const GROUP: &str = "kinference.buoyant.io";
/// Version of the resources.
pub const VERSION: &str = "v1alpha1";
