//! Every metric, label and label's value in alerts, dashboards and the runbook is one that there is.

use std::{collections::BTreeSet, fs, path::Path};

use crate::{alerts, dashboards, documented, query::Query, read, root};

/// What Prometheus adds to every series.
const TARGET: &[&str] = &["namespace", "job", "instance"];

/// Everything that is asked, and where.
fn queries() -> Vec<(String, Query)> {
    let rules = alerts::rules().into_iter().map(|rule| {
        let name = if rule["alert"].is_string() { &rule["alert"] } else { &rule["record"] };
        (name.to_string(), rule["expr"].as_str().unwrap().to_owned())
    });
    let all = rules.chain(dashboards::queries()).chain(variables());
    all.map(|(place, expr)| (place, Query::read(&expr))).collect()
}

/// What the values of variables are taken from, as a query.
fn variables() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (name, dashboard) in dashboards::dashboards() {
        for variable in dashboard["templating"]["list"].as_array().unwrap() {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let asked = query.strip_prefix("label_values(").unwrap().strip_suffix(')').unwrap();
            let (metric, label) = asked.split_once(", ").unwrap();
            found.push((format!("{name}: {}", variable["name"]), format!("sum by ({label}) ({metric})")));
        }
    }
    found
}

#[test]
fn every_metric_and_label_is_one_that_there_is() {
    let families = documented::families();
    let mut wrong = Vec::new();
    for (place, query) in queries() {
        let mut all: BTreeSet<String> = TARGET.iter().map(|label| (*label).to_owned()).collect();
        all.extend(query.texts.clone());
        for (metric, matchers) in &query.metrics {
            let labels = documented::labels(&families, metric).or_else(|| alerts::recorded(metric));
            let Some(labels) = labels else {
                wrong.push(format!("{place}: no metric {metric}"));
                continue;
            };
            let known = |label: &str| labels.contains(label) || TARGET.contains(&label);
            wrong.extend(
                matchers
                    .iter()
                    .filter(|(label, _)| !known(label))
                    .map(|(label, _)| format!("{place}: {metric} has no {label}")),
            );
            all.extend(labels);
        }
        wrong.extend(query.grouped.difference(&all).map(|label| format!("{place}: nothing has {label}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_runbook_names_metrics_that_there_are() {
    let families = documented::families();
    let runbook = read("docs/runbook.md");
    let words = runbook.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let mut metrics =
        words.filter(|word| word.starts_with("kinference_") || word.starts_with("process_")).peekable();
    assert!(metrics.peek().is_some());
    for metric in metrics {
        assert!(families.contains_key(metric) || documented::labels(&families, metric).is_some(), "{metric}");
    }
}

/// A value that nobody writes matches nothing, and no tool says so. The code has each as a text or as the variant of an enum.
#[test]
fn every_value_of_a_label_is_in_the_code() {
    let mut code = String::new();
    collect(&root().join("src"), &mut code);
    let mut seen = 0;
    for (place, query) in queries() {
        for (metric, matchers) in query.metrics {
            for value in
                matchers.iter().flat_map(|(_, value)| value.split('|')).filter(|value| *value != ".*")
            {
                seen += 1;
                let variant = value.split('_').map(capitalised).collect::<String>();
                let is_there =
                    code.contains(&format!("\"{value}\"")) || code.contains(&format!("Self::{variant}"));
                assert!(is_there || documented_value(&metric, value), "{place}: {metric}: {value}");
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Whether the row of a metric tells of the value.
fn documented_value(metric: &str, value: &str) -> bool {
    let doc = read("docs/metrics.md");
    let family =
        ["_sum", "_count", "_bucket"].iter().find_map(|suffix| metric.strip_suffix(suffix)).unwrap_or(metric);
    let mut rows = doc.lines().filter(|line| line.starts_with(&format!("| `{family}` |")));
    rows.any(|row| row.contains(&format!("`{value}`")))
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_uppercase() + rest
}

fn collect(dir: &Path, code: &mut String) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, code);
        } else {
            code.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}
