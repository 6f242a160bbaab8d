//! The CEL rules of a schema, evaluated as the API server evaluates them.

use std::{
    collections::{BTreeMap, HashMap},
    sync::LazyLock,
};

use cel::{Context, Program};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrBool, ValidationRule,
};
use serde_json::Value;

use super::{
    super::{
        crd, expression,
        problem::{FieldPath, Problem},
    },
    shape,
};

/// Every rule of our CRDs, compiled.
static PROGRAMS: LazyLock<BTreeMap<String, Program>> = LazyLock::new(|| {
    let mut out = BTreeMap::new();
    for version in crd::definitions().iter().flat_map(|crd| &crd.spec.versions) {
        let schema = version.schema.as_ref().and_then(|schema| schema.open_api_v3_schema.as_ref());
        schema.inspect(|schema| compile(schema, &mut out));
    }
    out
});

fn compile(schema: &JSONSchemaProps, out: &mut BTreeMap<String, Program>) {
    for rule in schema.x_kubernetes_validations.iter().flatten() {
        if let Ok(program) = Program::compile(&rule.rule) {
            out.insert(rule.rule.clone(), program);
        }
    }
    schema.properties.iter().flatten().for_each(|(_, field)| compile(field, out));
    shape::of_items(schema).into_iter().for_each(|each| compile(each, out));
    if let Some(JSONSchemaPropsOrBool::Schema(each)) = &schema.additional_properties {
        compile(each, out);
    }
}

/// Says which rules of `schema` the value breaks.
pub(super) fn check(schema: &JSONSchemaProps, path: &FieldPath, value: &Value, out: &mut Vec<Problem>) {
    let Some(rules) = schema.x_kubernetes_validations.as_deref().filter(|rules| !rules.is_empty()) else {
        return;
    };
    let mut context = expression::context();
    context.add_variable_from_value("self", cel_value(schema, value));
    for rule in rules.iter().filter(|rule| !holds(rule, &context)) {
        let inside = FieldPath::of(rule.field_path.as_deref().unwrap_or_default());
        out.push(Problem::new(path.join(&inside), rule.message.clone().unwrap_or_default()));
    }
}

fn holds(rule: &ValidationRule, context: &Context<'_, '_>) -> bool {
    let verdict = PROGRAMS.get(&rule.rule).map(|program| program.execute(context));
    // A rule that can't be evaluated is broken, as it is for the API server.
    matches!(verdict, Some(Ok(cel::Value::Bool(true))))
}

/// Whole numbers and others are different types in CEL: the schema says which is which.
fn cel_value(schema: &JSONSchemaProps, value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(yes) => cel::Value::Bool(*yes),
        Value::String(text) => text.as_str().into(),
        Value::Number(number) if schema.type_.as_deref() == Some("integer") => {
            cel::Value::Int(number.as_i64().unwrap_or_default())
        }
        Value::Number(number) => cel::Value::Float(number.as_f64().unwrap_or_default()),
        Value::Array(items) => {
            let each = shape::of_items(schema).unwrap_or(schema);
            items.iter().map(|item| cel_value(each, item)).collect::<Vec<_>>().into()
        }
        Value::Object(fields) => {
            let of_field = |name: &String| match &schema.additional_properties {
                Some(JSONSchemaPropsOrBool::Schema(each)) => Some(each.as_ref()),
                _ => schema.properties.as_ref().and_then(|known| known.get(name)),
            };
            let known = fields.iter().filter_map(|(name, field)| Some((name, of_field(name)?, field)));
            let known = known.map(|(name, schema, field)| (name.clone(), cel_value(schema, field)));
            known.collect::<HashMap<_, _>>().into()
        }
    }
}
