//! The CustomResourceDefinitions: what kube derives from the types, made fit for an API server without warnings.

use std::{fs, io, path::Path, sync::LazyLock};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use super::{
    super::schema::nearest, GatewayBackend, InferencePolicy, InferencePool, InferenceProvider,
    InferenceWorkerSet,
};

/// Similarity (0..1) from which a kind counts as what was meant. Kinds of others are far below.
const NEAR: f64 = 0.8;

/// All of them, by kind.
pub fn definitions() -> &'static [CustomResourceDefinition] {
    static ALL: LazyLock<Vec<CustomResourceDefinition>> = LazyLock::new(|| {
        let derived = [
            GatewayBackend::crd(),
            InferencePolicy::crd(),
            InferencePool::crd(),
            InferenceProvider::crd(),
            InferenceWorkerSet::crd(),
        ];
        derived.iter().map(finished).collect()
    });
    &ALL
}

/// All as YAML documents, or the one of a kind.
///
/// # Errors
/// The name is no kind; says which there are.
pub fn yaml(kind: Option<&str>) -> Result<String, UnknownKind> {
    let wanted = |crd: &&CustomResourceDefinition| kind.is_none_or(|kind| crd.spec.names.kind == kind);
    let found: Vec<_> = definitions().iter().filter(wanted).collect();
    if found.is_empty() {
        return Err(UnknownKind(kind.unwrap_or_default().to_owned()));
    }
    // What was made from JSON can be written as YAML.
    let documents = found.iter().map(|crd| serde_saphyr::to_string(crd).unwrap_or_default());
    Ok(documents.map(|document| format!("---\n{document}")).collect())
}

/// Writes each into a file of its own in a directory, as the chart has them.
///
/// # Errors
/// A file can't be written.
pub fn write_yaml(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for crd in definitions() {
        let text = yaml(Some(&crd.spec.names.kind)).map_err(io::Error::other)?;
        fs::write(dir.join(format!("{}.yaml", crd.spec.names.plural)), text)?;
    }
    Ok(())
}

/// No kind of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no kind of {group}{near}; accepted: {kinds}", group = super::GROUP, near = near(.0), kinds = kinds().join(", "))]
pub struct UnknownKind(pub String);

fn near(name: &str) -> String {
    nearest(name, &kinds(), NEAR).map(|kind| format!(", did you mean {kind}?")).unwrap_or_default()
}

/// The names of the kinds.
pub fn kinds() -> Vec<&'static str> {
    definitions().iter().map(|crd| crd.spec.names.kind.as_str()).collect()
}

fn finished(derived: &CustomResourceDefinition) -> CustomResourceDefinition {
    let mut value = serde_json::to_value(derived).unwrap_or_default();
    tidy(&mut value);
    // An uninstalled chart must not take all resources of users with it.
    value["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
    // It was one before.
    serde_json::from_value(value).unwrap_or_else(|_| derived.clone())
}

/// Kubernetes knows no unsigned numbers, and what is not given is left out rather than null.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            if let Some(format) = fields.get_mut("format") {
                match format.as_str() {
                    Some("uint8" | "uint16") => *format = "int32".into(),
                    Some("uint32" | "uint64") => *format = "int64".into(),
                    _ => {}
                }
            }
            fields.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_told_apart_from_a_kind_of_others() {
        for (name, meant) in [
            ("InferencePolicies", Some("InferencePolicy")),
            ("inferencepool", Some("InferencePool")),
            ("InferenceWorkerset", Some("InferenceWorkerSet")),
            ("GatewayBackends", Some("GatewayBackend")),
            ("Deployment", None),
            ("Service", None),
            ("HTTPRoute", None),
            ("", None),
        ] {
            let said = UnknownKind(name.into()).to_string();
            match meant {
                Some(meant) => assert!(said.contains(&format!(", did you mean {meant}?")), "{said}"),
                None => assert!(!said.contains("did you mean"), "{said}"),
            }
        }
    }
}
