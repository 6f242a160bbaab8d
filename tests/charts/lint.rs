//! `helm lint --strict` of every chart, with every file of values.

use std::fs;

use serde_json::Value;

use crate::{
    helm::{CHART, Helm, values_files},
    read, root,
};

#[test]
fn the_chart_installs_the_version_that_it_came_with() {
    let chart: Value = serde_saphyr::from_str(&read("charts/kinference/Chart.yaml")).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn helm_finds_nothing_to_say() {
    let Some(helm) = Helm::find() else { return };
    for values in values_files() {
        helm.run(&["lint", "--strict", "--quiet", "--values", values.to_str().unwrap(), CHART]).unwrap();
    }
    for chart in fs::read_dir(root().join("charts")).unwrap() {
        let chart = chart.unwrap().path();
        helm.run(&["lint", "--strict", "--quiet", chart.to_str().unwrap()]).unwrap();
    }
}
