//! `helm lint --strict` of every chart, with every file of values.

use std::fs;

use crate::{
    helm::{CHART, Helm, values_files},
    root,
};

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
