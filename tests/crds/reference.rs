//! `docs/crds.md` describes every field as the definitions do: what follows its marker is generated.

use std::{env, fmt::Write, fs, path::Path};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kinference::policy::crd;

const PAGE: &str = "docs/crds.md";
const MARKER: &str = "<!-- From here on it is generated from the definitions. -->\n";
/// Set, the page is written instead of held to the definitions.
const WRITE: &str = "KINFERENCE_TEST_WRITE_DOCS";

#[test]
fn the_page_describes_the_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let (prose, generated) = page.split_once(MARKER).unwrap();
    let wanted: String = crd::definitions().iter().map(section).collect();
    if env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{prose}{MARKER}{wanted}")).unwrap();
    } else {
        assert!(generated == wanted, "{PAGE} is stale: {WRITE}=1 cargo nextest run --test crds writes it");
    }
}

fn section(crd: &CustomResourceDefinition) -> String {
    let names = &crd.spec.names;
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    let short = names.short_names.as_ref().unwrap().join(", ");
    let mut out = format!("\n## {} (`{short}`)\n\n{}\n", names.kind, described(schema));
    for part in ["spec", "status"] {
        out += "\n| Field | Type | Default | |\n|---|---|---|---|\n";
        rows(part, &schema.properties.as_ref().unwrap()[part], &mut (&mut out, Vec::new()));
    }
    out
}

/// The table, and what was described in it already, by its path.
type Table<'a, 'b> = (&'a mut String, Vec<(&'b JSONSchemaProps, String)>);

fn rows<'b>(path: &str, schema: &'b JSONSchemaProps, table: &mut Table<'_, 'b>) {
    let required = schema.required.as_deref().unwrap_or_default();
    for (name, field) in schema.properties.iter().flatten() {
        let (path, mut here) = (format!("{path}.{name}"), field);
        let mut suffix = String::new();
        let kind = kind(field);
        loop {
            if let Some(JSONSchemaPropsOrArray::Schema(each)) = &here.items {
                (here, suffix) = (each, suffix + "[]");
            } else if let Some(JSONSchemaPropsOrBool::Schema(each)) = &here.additional_properties {
                (here, suffix) = (each, suffix + ".*");
            } else {
                break;
            }
        }
        let default = match &field.default {
            Some(value) if field.type_.as_deref() != Some("object") => format!("`{}`", value.0),
            None if required.contains(name) => "required".into(),
            _ => String::new(),
        };
        let mut said = described(field);
        let rules = field.x_kubernetes_validations.iter().flatten();
        let inner = if std::ptr::eq(here, field) { None } else { here.x_kubernetes_validations.as_ref() };
        for rule in rules.chain(inner.into_iter().flatten()) {
            let at = rule.field_path.as_ref().map(|at| format!("`{}` ", &at[1..])).unwrap_or_default();
            write!(said, " {}.", capital(&format!("{at}{}", rule.message.as_ref().unwrap()))).unwrap();
        }
        let fields = format!("{path}{suffix}");
        let known = table
            .1
            .iter()
            .find(|(other, _)| here.properties.is_some() && other.properties == here.properties);
        let known = known.map(|(_, path)| path.clone());
        if let Some(known) = &known {
            write!(said, " Its fields are those of `{known}`.").unwrap();
        }
        writeln!(table.0, "| `{path}` | {kind} | {default} | {said} |").unwrap();
        // Conditions are Kubernetes' own.
        if known.is_none() && name != "conditions" {
            table.1.push((here, fields.clone()));
            rows(&fields, here, table);
        }
    }
}

fn kind(schema: &JSONSchemaProps) -> String {
    if let Some(names) = &schema.enum_ {
        return names
            .iter()
            .map(|name| format!("`{}`", name.0.as_str().unwrap()))
            .collect::<Vec<_>>()
            .join(", ");
    }
    match (&schema.items, &schema.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(each)), _) => format!("list of {}", kind(each)),
        (_, Some(JSONSchemaPropsOrBool::Schema(each))) => format!("map of {}", kind(each)),
        _ => {
            let bounds = match (schema.minimum, schema.maximum) {
                (Some(least), Some(most)) => format!(", {least} to {most}"),
                (None, Some(most)) => format!(", at most {most}"),
                _ => String::new(),
            };
            format!("{}{bounds}", schema.type_.as_ref().unwrap())
        }
    }
}

fn described(schema: &JSONSchemaProps) -> String {
    schema.description.clone().unwrap_or_default().replace('\n', " ")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
