//! Files that are derived and checked in: a test fails when one differs, and `make charts` renews them.

use std::{env, fs, path::Path};

use serde_json::Value;

use crate::{
    helm::{Helm, values_files},
    read, readme, root, schema,
};

/// Holds a file to what it should be, or makes it so.
fn renew(path: &str, wanted: &str) {
    if env::var_os("KINFERENCE_RENEW").is_some() {
        return fs::write(root().join(path), wanted).unwrap();
    }
    let is = if root().join(path).exists() { read(path) } else { String::new() };
    if is == wanted {
        return;
    }
    let line = is.lines().zip(wanted.lines()).take_while(|(is, wanted)| is == wanted).count();
    let [is, wanted] = [is.as_str(), wanted].map(|text| text.lines().nth(line).unwrap_or("(its end)"));
    panic!(
        "{path} is out of date: `make charts` renews it. Line {}:\n  is:     {is}\n  wanted: {wanted}",
        line + 1
    );
}

#[test]
fn a_readme_with_every_value() {
    renew("charts/kinference/README.md", &readme::with_values(&read("charts/kinference/README.md")));
}

#[test]
fn b_schema_with_every_key_of_the_configuration() {
    let path = "charts/kinference/values.schema.json";
    renew(path, &schema::with_configuration(&read(path)));
}

/// A chart can't reach beyond its folder.
#[test]
fn a_copies_of_what_watches_it() {
    renew("charts/kinference/files/alerts.yml", &read("config/prometheus/alerts.yml"));
    for name in ["fleet", "predictions", "tenants"] {
        let dashboard: Value = serde_json::from_str(&read(format!("config/grafana/{name}.json"))).unwrap();
        renew(&format!("charts/kinference/files/{name}.json"), &format!("{dashboard}\n"));
    }
}

#[test]
fn c_snapshots() {
    let Some(helm) = Helm::find() else { return };
    for values in values_files() {
        let name = values.file_name().unwrap().to_str().unwrap();
        renew(&format!("tests/charts/snapshots/{name}"), &helm.render(&values));
    }
    for snapshot in fs::read_dir(root().join("tests/charts/snapshots")).unwrap() {
        let name = snapshot.unwrap().file_name();
        assert!(
            values_files().iter().any(|values| values.file_name() == Some(&name)),
            "{}: of no file of values",
            Path::new(&name).display()
        );
    }
}
