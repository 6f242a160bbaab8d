//! The five kinds of `kinference.buoyant.io/v1alpha1`, as they are written in YAML.
//!
//! The schemas of the CRDs are generated from these types: their doc comments are the descriptions that users read
//! with `kubectl explain`.

mod worker_set;

pub use worker_set::{
    InferenceWorkerSet, InferenceWorkerSetSpec, InferenceWorkerSetStatus, KvEventSource, KvEventsSpec,
    PortNames, ServiceReference,
};

/// Group of the resources.
pub const GROUP: &str = "kinference.buoyant.io";
/// Version of the resources.
pub const VERSION: &str = "v1alpha1";
