//! A resource of one of our kinds, read and held to its schema, with everything wrong said at once.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{
    checks,
    crd::{self, GatewayBackend, InferencePolicy, InferencePool, InferenceProvider, InferenceWorkerSet},
    problem::{FieldPath, Problem},
    schema,
};

/// A resource.
#[derive(Clone, Debug, PartialEq)]
pub enum Resource {
    /// What an HTTPRoute refers to.
    GatewayBackend(GatewayBackend),
    /// Rules for a pool.
    InferencePolicy(InferencePolicy),
    /// Published models.
    InferencePool(InferencePool),
    /// An external endpoint.
    InferenceProvider(InferenceProvider),
    /// Engines that are alike.
    InferenceWorkerSet(InferenceWorkerSet),
}

/// Reads a resource as it is in YAML or JSON, with its defaults filled in.
///
/// # Errors
/// Everything that is wrong with it.
pub fn read(mut value: Value) -> Result<Resource, Vec<Problem>> {
    let kind = kind(&value)?;
    let problems = schema::check(&kind, &mut value);
    if !problems.is_empty() {
        return Err(problems);
    }
    let resource = match kind.as_str() {
        "GatewayBackend" => typed(value).map(Resource::GatewayBackend),
        "InferencePolicy" => typed(value).map(Resource::InferencePolicy),
        "InferencePool" => typed(value).map(Resource::InferencePool),
        "InferenceProvider" => typed(value).map(Resource::InferenceProvider),
        _ => typed(value).map(Resource::InferenceWorkerSet),
    }?;
    let problems = checks::of(&resource);
    if problems.is_empty() { Ok(resource) } else { Err(problems) }
}

/// What is wrong with a resource that came from an API server, perhaps one with another version of the CRDs.
pub fn validate<K: Serialize>(resource: &K) -> Vec<Problem> {
    match serde_json::to_value(resource) {
        Ok(value) => read(value).err().unwrap_or_default(),
        Err(error) => vec![Problem::new(FieldPath::default(), error.to_string())],
    }
}

fn kind(value: &Value) -> Result<String, Vec<Problem>> {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut problems = Vec::new();
    let version = format!("{}/{}", crd::GROUP, crd::VERSION);
    if text("apiVersion") != version {
        let message = format!("is {:?}, but must be {version}", text("apiVersion"));
        problems.push(Problem::new(FieldPath::of("apiVersion"), message));
    }
    if !crd::kinds().contains(&text("kind")) {
        let message = crd::UnknownKind(text("kind").into()).to_string();
        problems.push(Problem::new(FieldPath::of("kind"), message));
    }
    if value.pointer("/metadata/name").and_then(Value::as_str).is_none_or(str::is_empty) {
        problems.push(Problem::new(FieldPath::of("metadata.name"), "is required: the resource's name"));
    }
    if problems.is_empty() { Ok(text("kind").into()) } else { Err(problems) }
}

/// The schema was derived from the type, so what fits the one fits the other.
fn typed<K: DeserializeOwned>(value: Value) -> Result<K, Vec<Problem>> {
    serde_json::from_value(value)
        .map_err(|error| vec![Problem::new(FieldPath::default(), format!("cannot be read: {error}"))])
}
