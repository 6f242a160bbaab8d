//! The part of `values.schema.json` that describes Kinference's configuration, made from `docs/configuration.md`: which another test
//! holds to the code.

use serde_json::{Map, Value, json};

use crate::read;

/// Keys that the chart itself sets.
const SET_BY_THE_CHART: &[&str] = &["listen", "admin_listen", "tls"];

/// The schema with those parts renewed.
pub fn with_configuration(text: &str) -> String {
    let mut schema: Value = serde_json::from_str(text).unwrap();
    let (config, worker) = described(&read("docs/configuration.md"));
    schema["properties"]["config"] = config;
    schema["$defs"]["worker"] = worker;
    serde_json::to_string_pretty(&schema).unwrap() + "\n"
}

/// The schemas of the configuration file and of an entry of a workers file.
fn described(doc: &str) -> (Value, Value) {
    let (mut config, mut worker) = (object(), object());
    let (mut section, mut keys) = (None, false);
    for line in doc.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = Some(title.trim_matches('`'));
        }
        // Other tables are none of keys.
        keys = line.starts_with("| Key | Type |") || keys && line.starts_with('|');
        if let (Some(title), Some(row), true) = (section, line.strip_prefix("| `"), keys) {
            let at = match title {
                "Top level" => &mut config,
                "Workers file" => &mut worker,
                title => table(&mut config, title),
            };
            describe(at, row);
        }
    }
    let top = config["properties"].as_object_mut().unwrap();
    top.retain(|key, _| !SET_BY_THE_CHART.contains(&key.as_str()));
    top["profile"]["minItems"] = json!(1);
    config["required"] = json!(["profile"]);
    (config, worker)
}

fn object() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// The schema of a section, such as `[a.b]` or `[[a]]`, made where it isn't there.
fn table<'s>(config: &'s mut Value, title: &str) -> &'s mut Value {
    let mut at = config;
    for name in title.trim_matches(['[', ']']).split('.') {
        let properties = at["properties"].as_object_mut().unwrap();
        let new =
            || if title.starts_with("[[") { json!({"type": "array", "items": object()}) } else { object() };
        at = properties.entry(name).or_insert_with(new);
        if at["type"] == "array" {
            at = &mut at["items"];
        }
    }
    at
}

/// Adds a row of a table of keys: names, type, default, effect.
fn describe(at: &mut Value, row: &str) {
    let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
    let [names, kind, default, effect] = cells[..] else { panic!("{row}") };
    for name in names.split(", ").map(|name| name.trim_matches('`')) {
        let mut schema = of_type(kind);
        if name.ends_with("_port") {
            schema.insert("maximum".into(), json!(u16::MAX));
        }
        schema.insert("description".into(), json!(plain(effect)));
        at["properties"][name] = schema.into();
        // What one mode needs and another doesn't is left to Kinference.
        if default == "required" && !effect.contains("May be left out") {
            at.as_object_mut()
                .unwrap()
                .entry("required")
                .or_insert(json!([]))
                .as_array_mut()
                .unwrap()
                .push(json!(name));
        }
    }
}

fn of_type(kind: &str) -> Map<String, Value> {
    let schema = match kind {
        "bool" => json!({"type": "boolean"}),
        "integer" => json!({"type": "integer", "minimum": 0}),
        "float" => json!({"type": "number", "minimum": 0}),
        "string" | "URL" | "path" | "address" => json!({"type": "string"}),
        "list" => json!({"type": "array", "items": {"type": "string"}}),
        "string or list" => json!({"type": ["string", "array"], "items": {"type": "string"}}),
        other => panic!("no schema for the type {other}"),
    };
    schema.as_object().unwrap().clone()
}

/// Without the marks of Markdown that a schema has no use for.
fn plain(effect: &str) -> String {
    let mut out = effect.replace("**", "").replace("](", "\u{0}");
    while let Some(link) = out.find('\u{0}') {
        let end = link + out[link..].find(')').unwrap();
        let start = out[..link].rfind('[').unwrap();
        out.replace_range(link..=end, "");
        out.remove(start);
    }
    out
}
