//! The Grafana dashboards: made by their generator, complete, and laid out without gaps or overlaps. Grid units: 24 a row.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;

use crate::{Promtool, read, root};

/// The dashboards, by file name.
pub fn dashboards() -> Vec<(String, Value)> {
    let files = fs::read_dir(root().join("config/grafana")).unwrap().map(|entry| entry.unwrap().path());
    let json = files.filter(|path| path.extension().is_some_and(|e| e == "json"));
    let mut all: Vec<_> = json
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, serde_json::from_str(&read(&path)).unwrap())
        })
        .collect();
    all.sort_by(|(a, _), (b, _): &(String, Value)| a.cmp(b));
    assert_eq!(
        all.iter().map(|(name, _)| &**name).collect::<Vec<_>>(),
        ["fleet.json", "predictions.json", "tenants.json"]
    );
    all
}

fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().unwrap()
}

/// Every query of the panels, with Grafana's variables replaced by what they may stand for, and where it is.
pub fn queries() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, dashboard) in dashboards() {
        for panel in panels(&dashboard) {
            for target in panel["targets"].as_array().unwrap() {
                let mut query = target["expr"].as_str().unwrap().to_owned();
                for variable in variables(&dashboard) {
                    query = query.replace(&format!("\"${variable}\""), "\".*\"");
                }
                query = query.replace("[$__rate_interval]", "[5m]").replace("[$__range]", "[1h]");
                let place = format!("{name}: {}", panel["title"]);
                assert!(!query.contains('$'), "{place}: a variable that is not there: {query}");
                found.push((place, query));
            }
        }
    }
    found
}

fn variables(dashboard: &Value) -> Vec<String> {
    let list = dashboard["templating"]["list"].as_array().unwrap();
    list.iter().map(|variable| variable["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn prometheus_reads_every_query() {
    let Some(promtool) = Promtool::find() else { return };
    let dir = tempfile::tempdir().unwrap();
    let rules: Vec<_> = queries()
        .into_iter()
        .enumerate()
        // What promtool complains of is named by it.
        .map(|(at, (place, expr))| serde_json::json!({"record": format!("query:{at}"), "expr": expr, "labels": {"place": place}}))
        .collect();
    let file = dir.path().join("queries.json");
    fs::write(&file, serde_json::json!({"groups": [{"name": "queries", "rules": rules}]}).to_string())
        .unwrap();
    promtool.run(&["check", "rules", file.to_str().unwrap()]);
}

#[test]
fn the_copies_are_the_generators() {
    let run = Command::new("python3")
        .args(["config/grafana/generate.py", "--check"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn every_panel_says_what_it_shows_in_which_unit_and_asks_the_source_that_is_chosen() {
    for (name, dashboard) in dashboards() {
        assert!((10..=14).contains(&panels(&dashboard).len()), "{name}");
        assert_eq!(dashboard["uid"], format!("kinference-{}", name.strip_suffix(".json").unwrap()));
        let mut titles = BTreeSet::new();
        for panel in panels(&dashboard) {
            let title = panel["title"].as_str().unwrap();
            assert!(titles.insert(title), "{name}: {title} twice");
            assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}: {title}");
            assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{name}: {title}");
            for target in panel["targets"].as_array().unwrap() {
                assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}: {title}");
            }
        }
    }
}

#[test]
fn every_variable_is_used() {
    for (name, dashboard) in dashboards() {
        let text = panels(&dashboard).iter().map(Value::to_string).collect::<String>();
        for variable in variables(&dashboard) {
            let used =
                text.contains(&format!("${variable}\\\"")) || text.contains(&format!("${{{variable}}}"));
            assert!(used, "{name}: {variable}");
        }
    }
}

#[test]
fn panels_fill_their_rows() {
    for (name, dashboard) in dashboards() {
        let mut taken = BTreeSet::new();
        let at = |panel: &Value, key: &str| panel["gridPos"][key].as_u64().unwrap();
        for panel in panels(&dashboard) {
            for x in at(panel, "x")..at(panel, "x") + at(panel, "w") {
                for y in at(panel, "y")..at(panel, "y") + at(panel, "h") {
                    assert!(x < 24 && taken.insert((x, y)), "{name}: {} at {x}, {y}", panel["title"]);
                }
            }
        }
        let rows = taken.iter().map(|(_, y)| y + 1).max().unwrap();
        assert_eq!(taken.len() as u64, 24 * rows, "{name}: a gap");
    }
}
