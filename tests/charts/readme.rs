//! The table of values in the chart's README, made from `values.yaml`: each value, its default and the comment above it.

use std::{collections::HashMap, fmt::Write as _};

use serde_json::Value;

use crate::read;

const START: &str = "<!-- values -->\n";
const END: &str = "<!-- end of values -->";

/// The README with the table renewed.
pub fn with_values(text: &str) -> String {
    let (head, rest) = text.split_once(START).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let mut table = String::from("| Value | Default | Effect |\n|---|---|---|\n");
    for row in rows() {
        writeln!(table, "| `{}` | `{}` | {} |", row.path, row.default, row.comment).unwrap();
    }
    format!("{head}{START}{table}{END}{tail}")
}

/// A value, its default as JSON, and what it does.
pub struct Row {
    pub path: String,
    pub default: String,
    pub comment: String,
}

/// Every documented value, in the order of the file.
pub fn rows() -> Vec<Row> {
    let text = read("charts/kinference/values.yaml");
    let values: Value = serde_saphyr::from_str(&text).unwrap();
    let mut rows = Vec::new();
    collect(&values, "", (&comments(&text), &mut rows));
    rows
}

/// A value with a comment is a row, whatever is in it; one without has to be a section.
fn collect(values: &Value, prefix: &str, (comments, rows): (&HashMap<String, String>, &mut Vec<Row>)) {
    let values = values.as_object().unwrap_or_else(|| panic!("{prefix}: no comment above it"));
    for (key, value) in values {
        let path = format!("{prefix}{key}");
        if let Some(comment) = comments.get(&path) {
            rows.push(Row { path, default: value.to_string(), comment: comment.clone() });
        } else {
            collect(value, &format!("{path}."), (comments, rows));
        }
    }
}

/// The comment above each key, by its path.
fn comments(text: &str) -> HashMap<String, String> {
    let (mut found, mut path, mut comment) = (HashMap::new(), Vec::new(), Vec::new());
    for line in text.lines() {
        let inner = line.trim_start();
        if let Some(words) = inner.strip_prefix("# ") {
            comment.push(words);
        } else if let (Some((key, _)), false) = (inner.split_once(':'), inner.starts_with('-')) {
            path.truncate((line.len() - inner.len()) / 2);
            path.push(key);
            if !comment.is_empty() {
                found.insert(path.join("."), comment.join(" "));
            }
            comment.clear();
        }
    }
    found
}

#[test]
fn the_schema_knows_exactly_the_values_that_there_are() {
    let schema: Value = serde_json::from_str(&read("charts/kinference/values.schema.json")).unwrap();
    let wanted: Vec<_> = rows().into_iter().map(|row| row.path).collect();
    let mut known = Vec::new();
    leaves(&schema, "", (&wanted, &mut known));
    let (mut known, mut wanted) = (known, wanted);
    known.retain(|path| path != "global"); // helm's own
    known.sort();
    wanted.sort();
    assert_eq!(known, wanted);
}

/// The paths of a schema, down to those that are values of the chart.
fn leaves(schema: &Value, prefix: &str, (values, out): (&[String], &mut Vec<String>)) {
    for (key, inner) in schema["properties"].as_object().unwrap() {
        let path = format!("{prefix}{key}");
        if inner["properties"].is_object() && !values.contains(&path) {
            leaves(inner, &format!("{path}."), (values, out));
        } else {
            out.push(path);
        }
    }
}
