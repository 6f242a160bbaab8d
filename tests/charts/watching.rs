//! What the chart brings for watching: the alerts and dashboards of `config/`, whole, and only where they are asked for.

use serde_json::Value;

use crate::{
    helm::{Helm, objects, of_kind},
    read,
};

#[test]
fn alerts_come_whole() {
    let Some(helm) = Helm::find() else { return };
    let rendered = objects(&helm.template(&["--set", "prometheusRule.enabled=true"]).unwrap());
    let alerts: Value = serde_saphyr::from_str(&read("config/prometheus/alerts.yml")).unwrap();
    let rules = of_kind(&rendered, "PrometheusRule");
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0]["spec"], alerts);
}

#[test]
fn dashboards_come_whole_and_the_sidecar_finds_them() {
    let Some(helm) = Helm::find() else { return };
    let rendered = objects(&helm.template(&["--set", "dashboards.enabled=true"]).unwrap());
    let maps = of_kind(&rendered, "ConfigMap");
    let map = maps.iter().find(|map| map["metadata"]["name"] == "kinference-dashboards").unwrap();
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let data = map["data"].as_object().unwrap();
    assert_eq!(data.len(), 3);
    for (file, text) in data {
        let dashboard: Value = serde_json::from_str(text.as_str().unwrap()).unwrap();
        let path = format!("config/grafana/{}", file.strip_prefix("kinference-").unwrap());
        assert_eq!(dashboard, serde_json::from_str::<Value>(&read(path)).unwrap());
    }
}

#[test]
fn by_default_there_is_neither() {
    let Some(helm) = Helm::find() else { return };
    let rendered = helm.template(&[]).unwrap();
    assert!(!rendered.contains("monitoring.coreos.com") && !rendered.contains("dashboard"));
}
