//! `config/prometheus/alerts.yml`: what each alert says of itself, where the runbook has it, and that it is tested.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{query::Query, read};

const ALERTS: &str = "config/prometheus/alerts.yml";
const RUNBOOK: &str = "docs/runbook.md";

/// Every rule, recorded ones too.
pub fn rules() -> Vec<Value> {
    let file: Value = serde_saphyr::from_str(&read(ALERTS)).unwrap();
    let groups = file["groups"].as_array().unwrap().iter();
    groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

/// The labels of a series that a rule records, as its query says.
pub fn recorded(series: &str) -> Option<BTreeSet<String>> {
    let rule = rules().into_iter().find(|rule| rule["record"] == series)?;
    let query = Query::read(rule["expr"].as_str().unwrap());
    Some(query.grouped.into_iter().chain(query.texts).collect())
}

/// The alerts, by their names.
fn alerts() -> Vec<(String, Value)> {
    let name = |rule: &Value| rule["alert"].as_str().map(str::to_owned);
    let alerts: Vec<_> = rules().into_iter().filter_map(|rule| Some((name(&rule)?, rule))).collect();
    assert!(!alerts.is_empty());
    alerts
}

#[test]
fn each_alert_is_graded_and_explained() {
    for (name, alert) in alerts() {
        assert!(["page", "ticket"].iter().any(|grade| alert["labels"]["severity"] == *grade), "{name}");
        let annotations = alert["annotations"].as_object().unwrap();
        let said: Vec<_> = annotations.keys().map(String::as_str).collect();
        assert_eq!(said, ["summary", "description", "runbook"], "{name}");
        assert_eq!(annotations["runbook"], format!("{RUNBOOK}#{}", name.to_lowercase()), "{name}");
    }
}

#[test]
fn what_an_alert_says_is_of_labels_that_it_has() {
    for (name, alert) in alerts() {
        let query = Query::read(alert["expr"].as_str().unwrap());
        let mut has = query.grouped;
        query.metrics.iter().filter_map(|(metric, _)| recorded(metric)).for_each(|labels| has.extend(labels));
        for said in alert["annotations"].as_object().unwrap().values() {
            let labels = said.as_str().unwrap().split("$labels.").skip(1);
            for label in labels.map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap()) {
                assert!(has.contains(label), "{name}: {label}");
            }
        }
    }
}

#[test]
fn the_runbook_has_a_section_for_each_alert_and_for_nothing_else() {
    let runbook = read(RUNBOOK);
    let sections: Vec<_> = runbook.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, alerts().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>());
    for section in runbook.split("\n## ").skip(1) {
        let name = section.lines().next().unwrap();
        for part in ["**Means:** ", "**Look at:** ", "**Do:** "] {
            assert_eq!(section.matches(part).count(), 1, "{name}: {part}");
        }
    }
}

#[test]
fn each_alert_is_tested() {
    let tests = read("config/prometheus/tests.yml");
    for (name, _) in alerts() {
        assert!(tests.contains(&format!("ALERTS{{alertname=\"{name}\", alertstate=\"firing\"")), "{name}");
    }
}
