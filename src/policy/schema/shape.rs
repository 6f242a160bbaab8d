//! Types, fields, bounds: what a schema says without rules.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use serde_json::Value;

use super::{super::problem::FieldPath, Walk};

/// Characters of a value that a message shows.
const SHOWN: usize = 60;
/// Similarity (0..1) from which a known field counts as what was meant.
const NEAR: f64 = 0.6;

impl Walk {
    /// Whether `value` is of its type, so that what it consists of can be looked at.
    pub(super) fn shape(&mut self, schema: &JSONSchemaProps, path: &FieldPath, value: &Value) -> bool {
        let wanted = schema.type_.as_deref().unwrap_or_default();
        let fits = match wanted {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            _ => true,
        };
        if !fits {
            self.say(path, format!("is {}, but must be {}", shown(value), accepted(schema)));
            return false;
        }
        match value {
            Value::Object(fields) => self.fields(schema, path, fields),
            Value::Array(items) => self.items(schema, path, items),
            Value::String(text) => self.text(schema, path, text),
            Value::Number(number) => self.number(schema, path, number.as_f64().unwrap_or_default()),
            _ => {}
        }
        true
    }

    fn fields(
        &mut self,
        schema: &JSONSchemaProps,
        path: &FieldPath,
        fields: &serde_json::Map<String, Value>,
    ) {
        let known = schema.properties.as_ref();
        for name in schema.required.iter().flatten().filter(|name| !fields.contains_key(*name)) {
            if let Some(of_field) = known.and_then(|known| known.get(name)) {
                self.missing(&path.field(name), of_field);
            }
        }
        if let Some(known) = known.filter(|_| schema.additional_properties.is_none()) {
            for name in fields.keys().filter(|name| !known.contains_key(*name)) {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                self.say(&path.field(name), unknown(name, &names));
            }
        }
        self.count(path, (fields.len(), "fields"), (schema.min_properties, schema.max_properties));
    }

    fn items(&mut self, schema: &JSONSchemaProps, path: &FieldPath, items: &[Value]) {
        self.count(path, (items.len(), "entries"), (schema.min_items, schema.max_items));
        let keys = schema.x_kubernetes_list_map_keys.as_deref();
        let is_set = schema.x_kubernetes_list_type.as_deref() == Some("set");
        let key_of = |item: &Value| match keys {
            Some(keys) => keys.iter().map(|key| item.get(key).cloned()).collect::<Option<Vec<_>>>(),
            None => is_set.then(|| vec![item.clone()]),
        };
        for (n, item) in items.iter().enumerate() {
            let Some(key) = key_of(item) else { continue };
            if items[..n].iter().any(|other| key_of(other).as_ref() == Some(&key)) {
                let shown: Vec<_> = key.iter().map(shown).collect();
                self.say(&path.item(n), format!("is there twice: {}", shown.join(", ")));
            }
        }
    }

    fn text(&mut self, schema: &JSONSchemaProps, path: &FieldPath, text: &str) {
        let names: Vec<&str> = names(schema).collect();
        if !names.is_empty() && !names.contains(&text) {
            let near = nearest(text, &names, NEAR)
                .map(|name| format!("; did you mean `{name}`?"))
                .unwrap_or_default();
            self.say(path, format!("is {:?}, but must be {}{near}", cut(text), accepted(schema)));
        }
        self.count(path, (text.chars().count(), "characters"), (schema.min_length, schema.max_length));
    }

    fn number(&mut self, schema: &JSONSchemaProps, path: &FieldPath, number: f64) {
        let outside = schema.minimum.is_some_and(|least| number < least)
            || schema.maximum.is_some_and(|most| number > most);
        if outside {
            self.say(path, format!("is {number}, but must be {}", accepted(schema)));
        }
    }

    fn count(
        &mut self,
        path: &FieldPath,
        (is, what): (usize, &str),
        (least, most): (Option<i64>, Option<i64>),
    ) {
        let is = i64::try_from(is).unwrap_or(i64::MAX);
        if let Some(least) = least.filter(|least| is < *least) {
            self.say(path, format!("has {is} {what}, but must have at least {least}"));
        }
        if let Some(most) = most.filter(|most| is > *most) {
            self.say(path, format!("has {is} {what}, but can have at most {most}"));
        }
    }
}

/// Writes a whole number as one: to an API server, 16.0 is 16.
pub(super) fn whole(schema: &JSONSchemaProps, value: &mut Value) {
    const EXACT: f64 = 9e15;
    if schema.type_.as_deref() == Some("integer")
        && let Some(number) = value.as_f64().filter(|n| value.is_f64() && n.fract() == 0.0 && n.abs() < EXACT)
    {
        *value = (number as i64).into();
    }
}

/// What does for a schema, in words.
pub(super) fn accepted(schema: &JSONSchemaProps) -> String {
    let names: Vec<&str> = names(schema).collect();
    let what = match schema.type_.as_deref() {
        _ if !names.is_empty() => return format!("one of {}", names.join(", ")),
        Some("object") => "a map of fields",
        Some("array") => "a list",
        Some("string") => "a text",
        Some("boolean") => "`true` or `false`",
        Some("integer") => "a whole number",
        _ => "a number",
    };
    match (schema.minimum, schema.maximum) {
        (Some(least), Some(most)) => format!("{what} from {least} to {most}"),
        (Some(least), None) => format!("{what} of at least {least}"),
        (None, Some(most)) => format!("{what} of at most {most}"),
        (None, None) => what.into(),
    }
}

/// The schema of the items of a list.
pub(super) fn of_items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(each) => Some(each),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

fn names(schema: &JSONSchemaProps) -> impl Iterator<Item = &str> {
    schema.enum_.iter().flatten().filter_map(|name| name.0.as_str())
}

/// What is said of a field that does not exist.
pub(super) fn unknown(name: &str, known: &[&str]) -> String {
    let near = nearest(name, known, NEAR).map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    format!("is no field{near}; accepted: {}", known.join(", "))
}

/// The one of `known` that was probably meant.
pub(in crate::policy) fn nearest<'a>(name: &str, known: &[&'a str], least: f64) -> Option<&'a str> {
    let near = |known: &&'a str| (strsim::jaro_winkler(&name.to_lowercase(), &known.to_lowercase()), *known);
    let best = known.iter().map(near).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score >= least).map(|(_, known)| known)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "empty".into(),
        Value::Object(_) => "a map of fields".into(),
        Value::Array(_) => "a list".into(),
        other => cut(&other.to_string()),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        text.into()
    } else {
        text.chars().take(SHOWN).chain(['…']).collect()
    }
}
