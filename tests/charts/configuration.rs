//! What the chart renders is a configuration that Kinference reads, without a warning.

use std::path::Path;

use kinference::config::{Config, Discovery, parse_workers};
use serde_json::Value;

use crate::helm::{Helm, objects, of_kind, values_files};

/// The text of a file of any of the ConfigMaps.
fn file<'o>(objects: &'o [Value], name: &str) -> Option<&'o str> {
    of_kind(objects, "ConfigMap").into_iter().find_map(|map| map["data"][name].as_str())
}

#[test]
fn kinference_reads_every_rendered_configuration() {
    let Some(helm) = Helm::find() else { return };
    for values in values_files() {
        let objects = objects(&helm.render(&values));
        let text = file(&objects, "kinference.toml").unwrap();
        let (config, warnings) = Config::parse(text, Path::new("/etc/kinference"))
            .unwrap_or_else(|errors| panic!("{}: {errors}\n{text}", values.display()));
        assert_eq!(warnings, Vec::<String>::new(), "{}", values.display());
        for set in &config.workersets {
            let Discovery::Static { workers_file } = &set.discovery else { continue };
            let name = workers_file.file_name().unwrap().to_str().unwrap();
            let (workers, warnings) = parse_workers(file(&objects, name).unwrap(), false).unwrap();
            assert_eq!((workers.len(), warnings.len()), (1, 0), "{}", values.display());
        }
    }
}

#[test]
fn numbers_of_yaml_keep_their_value() {
    let Some(helm) = Helm::find() else { return };
    let config = r#"config={"body_max_total_kb": 4294967294, "body_max_request_kb": 1, "profile": [{"name": "p", "predictor": {
        "base_ms": 0.5, "attention_uncached_per_every_block_ms": 1e-9}, "picker": {"seed": 9007199254740991}}]}"#;
    let rendered = helm.template(&["--set-json", config]).unwrap();
    let objects = objects(&rendered);
    let (config, _) = Config::parse(file(&objects, "kinference.toml").unwrap(), Path::new("")).unwrap();
    let profile = &config.profiles[0];
    assert_eq!(config.body.total_bytes, 4_294_967_294 * 1024);
    assert_eq!(profile.predictor.base_ms, 0.5);
    assert_eq!(profile.predictor.attention_uncached_per_every_block_ms, 1e-9);
    assert_eq!(profile.picker.seed, Some(9_007_199_254_740_991));
}

#[test]
fn a_change_of_workers_restarts_nothing_and_one_of_the_configuration_does() {
    let Some(helm) = Helm::find() else { return };
    let pod = |args: &[&str]| {
        let objects = objects(&helm.template(args).unwrap());
        of_kind(&objects, "Deployment")[0]["spec"]["template"].clone()
    };
    assert_eq!(
        pod(&["--values", "charts/kinference/ci/static.yaml"]),
        pod(&["--values", "charts/kinference/ci/static.yaml", "--set-json", r#"workers={"llama.toml": []}"#])
    );
    assert_ne!(pod(&[]), pod(&["--set", "config.metrics_poll_ms=500"]));
}
