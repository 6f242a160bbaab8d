//! Holds a resource to the schema of its CRD, as the API server does, but without one: shape, defaults, rules.
//!
//! Source of truth: the generated CRDs, CEL rules included. Invariant: rules are asked only of values whose shape is
//! sound, so that one mistake is one problem.

mod rules;
mod shape;

pub(super) use shape::nearest;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrBool,
};
use serde_json::Value;

use super::{
    crd,
    problem::{FieldPath, Problem},
};

/// Fills in the defaults of `value`, a resource of that kind, and says all that is wrong with it.
pub(super) fn check(kind: &str, value: &mut Value) -> Vec<Problem> {
    let definition = crd::definitions().iter().find(|crd| crd.spec.names.kind == kind);
    let schema = definition
        .and_then(|crd| crd.spec.versions.first())
        .and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let Some(schema) = schema else {
        return vec![Problem::new(FieldPath::of("kind"), crd::UnknownKind(kind.into()).to_string())];
    };
    let mut walk = Walk::default();
    walk.root(value);
    for (name, of_field) in schema.properties.iter().flatten() {
        // What the server says of a resource is not the user's to get right.
        if name == "status" {
            continue;
        }
        let path = FieldPath::default().field(name);
        match value.get_mut(name) {
            Some(field) => walk.value(of_field, &path, field),
            None => walk.missing(&path, of_field),
        }
    }
    walk.problems
}

/// The fields of a resource.
const ROOT: [&str; 5] = ["apiVersion", "kind", "metadata", "spec", "status"];

/// A walk along a value and its schema.
#[derive(Default)]
struct Walk {
    problems: Vec<Problem>,
}

impl Walk {
    fn root(&mut self, value: &mut Value) {
        for field in ["name", "namespace"] {
            if let Some(name) = value.pointer_mut(&format!("/metadata/{field}")) {
                self.value(crd::object_name(), &FieldPath::of("metadata").field(field), name);
            }
        }
        let fields = value.as_object().into_iter().flat_map(|fields| fields.keys());
        for name in fields.filter(|name| !ROOT.contains(&name.as_str())) {
            self.say(&FieldPath::default().field(name), shape::unknown(name, &ROOT));
        }
    }

    fn value(&mut self, schema: &JSONSchemaProps, path: &FieldPath, value: &mut Value) {
        let before = self.problems.len();
        shape::whole(schema, value);
        if self.shape(schema, path, value) {
            self.inside(schema, path, value);
        }
        if self.problems.len() == before {
            rules::check(schema, path, value, &mut self.problems);
        }
    }

    /// What `value` consists of.
    fn inside(&mut self, schema: &JSONSchemaProps, path: &FieldPath, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(JSONSchemaPropsOrBool::Schema(each)) = &schema.additional_properties {
                    fields.iter_mut().for_each(|(name, field)| self.value(each, &path.field(name), field));
                    return;
                }
                for (name, of_field) in schema.properties.iter().flatten() {
                    let given = fields.get(name).is_some_and(|field| !field.is_null());
                    if let Some(default) = of_field.default.as_ref().filter(|_| !given) {
                        fields.insert(name.clone(), default.0.clone());
                    }
                    if let Some(field) = fields.get_mut(name) {
                        self.value(of_field, &path.field(name), field);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(each) = shape::of_items(schema) {
                    items.iter_mut().enumerate().for_each(|(n, item)| self.value(each, &path.item(n), item));
                }
            }
            _ => {}
        }
    }

    fn say(&mut self, path: &FieldPath, message: impl Into<String>) {
        self.problems.push(Problem::new(path.clone(), message));
    }

    fn missing(&mut self, path: &FieldPath, schema: &JSONSchemaProps) {
        self.say(path, format!("is required: {}", shape::accepted(schema)));
    }
}

#[cfg(test)]
mod tests;
