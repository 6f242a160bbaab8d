//! What platform teams watch Kinference with: alerts, dashboards and the runbook, held to each other, to the metrics that there are, and to
//! Prometheus' own promtool.
//!
//! promtool: `KINFERENCE_TEST_PROMTOOL`, else the one that `.ci/tools.py` put into `.cache/`, else those tests are skipped with one line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod alerts;
mod dashboards;
mod documented;
mod names;
mod query;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tools/mod.rs"]
mod tools;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// promtool, run beside the files of Prometheus.
struct Promtool(PathBuf);

impl Promtool {
    /// The one to test with, or `None` after saying that there is none.
    fn find() -> Option<Self> {
        tools::tool("promtool", "KINFERENCE_TEST_PROMTOOL").map(Self)
    }

    /// Fails with what it says unless it is content.
    fn run(&self, args: &[&str]) {
        let run =
            Command::new(&self.0).current_dir(root().join("config/prometheus")).args(args).output().unwrap();
        let said = [run.stdout, run.stderr].concat();
        assert!(run.status.success(), "promtool {}:\n{}", args.join(" "), String::from_utf8_lossy(&said));
    }
}

#[test]
fn prometheus_takes_the_configuration() {
    let Some(promtool) = Promtool::find() else { return };
    promtool.run(&["check", "config", "prometheus.yml"]);
    promtool.run(&["check", "rules", "--lint=all", "--lint-fatal", "alerts.yml"]);
}

#[test]
fn each_alert_fires_when_it_should_and_only_then() {
    let Some(promtool) = Promtool::find() else { return };
    promtool.run(&["test", "rules", "tests.yml"]);
}

#[test]
fn the_demo_is_scraped_where_it_listens() {
    let port = "127.0.0.1:9003\"";
    assert!(read("config/prometheus/prometheus.yml").contains(port));
    assert!(read("examples/demo/kinference.toml").contains("admin_listen = \"0.0.0.0:9003\""));
}
