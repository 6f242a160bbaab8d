//! Runs helm on the charts.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{root, tools, yaml_files};

/// Where the chart is installed to.
pub const NAMESPACE: &str = "inference";
pub const CHART: &str = "charts/kinference";

/// helm.
pub struct Helm(PathBuf);

impl Helm {
    /// The one to test with, or `None` after saying that there is none.
    pub fn find() -> Option<Self> {
        tools::tool("helm", "KINFERENCE_TEST_HELM").map(Self)
    }

    /// What it prints, or what it complains of.
    pub fn run(&self, args: &[&str]) -> Result<String, String> {
        let run = Command::new(&self.0).current_dir(root()).args(args).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        if run.status.success() { Ok(text(run.stdout)) } else { Err(text(run.stderr)) }
    }

    /// The chart, rendered.
    pub fn template(&self, args: &[&str]) -> Result<String, String> {
        self.run(&[&["template", "kinference", CHART, "--namespace", NAMESPACE], args].concat())
    }

    /// The chart, rendered with a file of values.
    pub fn render(&self, values: &Path) -> String {
        self.template(&["--values", values.to_str().unwrap()]).unwrap()
    }
}

/// The files of values that the chart is tested with.
pub fn values_files() -> Vec<PathBuf> {
    yaml_files("charts/kinference/ci")
}

/// Each object of what was rendered.
pub fn objects(rendered: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(rendered).unwrap()
}

/// Those of that kind.
pub fn of_kind<'o>(objects: &'o [Value], kind: &str) -> Vec<&'o Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}
