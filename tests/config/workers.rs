//! The workers file: required keys, derived ones, uniqueness within a file and across files.

use std::{fs, path::Path};

use kinference::config::{Config, ConfigErrors, WorkerEntry, load_workers, parse_workers};

use crate::file;

fn errors(errors: &ConfigErrors) -> Vec<(&str, String)> {
    errors.errors().iter().map(|e| (e.path.as_str(), e.to_string())).collect()
}

/// One worker with these lines besides the ids and the model.
fn worker(lines: &str) -> String {
    format!("[[workers]]\nworker_id_str = \"w\"\nworker_id_num = 1\nmodel_name = \"m\"\n{lines}\n")
}

fn one(lines: &str, mock_mode: bool) -> Result<WorkerEntry, ConfigErrors> {
    parse_workers(&worker(lines), mock_mode).map(|(mut workers, _)| workers.remove(0))
}

const ZMQ: &str = "zmq_endpoint = \"tcp://a:5557\"\n";

#[test]
fn a_full_entry() {
    let entry = one(
        "zmq_endpoint = \"tcp://10.0.0.1:5557\"\nreplay_endpoint = \"ipc:///run/replay\"\nendpoint = \"10.0.0.1:80\"
        metrics_url = \"http://a:8000/metrics\"\nhttp_url = \"http://a:8000/\"\npod_name = \"p\"\nnamespace = \"n\"
        node_name = \"o\"\nnode_ip = \"1\"\npod_ip = \"2\"\navailability_zone = \"z\"\ninstance_type = \"\"",
        false,
    )
    .unwrap();
    assert_eq!((&*entry.worker_id_str, entry.worker_id_num, &*entry.model_name), ("w", 1, "m"));
    assert_eq!(entry.http_url.as_deref(), Some("http://a:8000"), "paths are appended to it");
    assert_eq!(&*entry.endpoint, "10.0.0.1:80", "given, so not derived");
    assert!(!entry.cordoned);
    let t = entry.topology;
    let labels =
        [t.pod_name, t.namespace, t.node_name, t.node_ip, t.pod_ip, t.availability_zone, t.instance_type];
    assert_eq!(labels.map(Option::unwrap_or_default), ["p", "n", "o", "1", "2", "z", ""]);
}

#[test]
fn endpoints_are_derived() {
    for (url, want) in [("http://a:8000/x", "a:8000"), ("http://a", "a:80"), ("https://[::1]", "[::1]:443")] {
        assert_eq!(&*one(&format!("{ZMQ}http_url = \"{url}\""), false).unwrap().endpoint, want);
    }
}

/// Lines of a worker, then the path and words of the one error.
const CONSTRAINTS: &[(&str, &str, &str)] = &[
    ("http_url = \"http://a\"", "zmq_endpoint", "only in mock mode"),
    ("zmq_endpoint = \"tcp://a:1\"", "endpoint", "left out where `http_url` is set"),
    ("zmq_endpoint = \"a:1\"\nendpoint = \"a:1\"", "zmq_endpoint", "tcp://host:port"),
    ("zmq_endpoint = \"tcp://a:1\"\nendpoint = \"a\"", "endpoint", "host:port"),
    ("zmq_endpoint = \"tcp://a:1\"\nendpoint = \"http://a:1\"", "endpoint", "host:port"),
    ("zmq_endpoint = \"tcp://a:1\"\nhttp_url = \"a:1\"", "http_url", "http://"),
    ("zmq_endpoint = \"tcp://a:1\"\nendpoint = \"a:1\"\nmetrics_url = \"a\"", "metrics_url", "http://"),
    (
        "zmq_endpoint = \"tcp://a:1\"\nendpoint = \"a:1\"\nreplay_endpoint = \"a\"",
        "replay_endpoint",
        "ipc://",
    ),
    ("zmq_endpoint = \"tcp://a:1\"\nendpoint = \"a:1\"\ncordoned = 1", "cordoned", "true or false"),
    ("zmq_endpoint = \"tcp://a:1\"\nendpoint = \"a:1\"\npod_ip = 1", "pod_ip", "a string"),
];

#[test]
fn every_constraint_holds() {
    for (lines, key, words) in CONSTRAINTS {
        let report = one(lines, false).unwrap_err();
        let found = errors(&report);
        assert_eq!(found.len(), 1, "{lines}: {report}");
        assert_eq!(found[0].0, format!("workers[0].{key}"), "{lines}");
        assert!(found[0].1.contains(words), "{words:?} is not in {:?}", found[0].1);
    }
    let good = worker(&format!("{ZMQ}endpoint = \"a:1\""));
    for (key, bad) in
        [("worker_id_str", "\"\""), ("worker_id_num", "-1"), ("worker_id_num", "\"1\""), ("model_name", "1")]
    {
        let lines: Vec<_> = good.lines().filter(|line| !line.starts_with(key)).collect();
        for text in [lines.join("\n"), format!("{}\n{key} = {bad}", lines.join("\n"))] {
            let report = parse_workers(&text, false).unwrap_err();
            assert_eq!(errors(&report).len(), 1, "{report}");
            assert_eq!(errors(&report)[0].0, format!("workers[0].{key}"));
        }
    }
}

#[test]
fn mock_mode_needs_no_zmq_endpoint() {
    assert_eq!(one("endpoint = \"a:1\"", true).unwrap().zmq_endpoint, None);
    assert!(one("endpoint = \"a:1\"\nzmq_endpoint = \"x\"", true).is_err(), "but takes no bad one");
}

#[test]
fn shapes_of_the_list() {
    assert_eq!(parse_workers("workers = []", false).unwrap().0, []);
    for (text, path, words) in [
        ("", "workers", "required"),
        ("[workers]\nworker_id_num = 1", "workers", "`[[workers]]` instead of `[workers]`"),
        ("workers = [1]", "workers[0]", "a table"),
        ("[[workers]", "", "line 1"),
    ] {
        let report = parse_workers(text, false).unwrap_err();
        assert_eq!(errors(&report).len(), 1, "{report}");
        assert!(errors(&report)[0].0 == path && errors(&report)[0].1.contains(words), "{report}");
    }
    let (_, warnings) = parse_workers(
        &format!("x = 1\n{}", worker(&format!("{ZMQ}endpoint = \"a:1\"\nhttp_ulr = 1"))),
        false,
    )
    .unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].contains("`workers[0].http_ulr`") && warnings[0].contains("did you mean `http_url`"));
    assert!(warnings[1].contains("`x`"));
}

#[test]
fn ids_are_unique_in_a_file() {
    let entry = worker(&format!("{ZMQ}endpoint = \"a:1\""));
    let other = entry.replace("_str = \"w\"", "_str = \"v\"");
    let report = parse_workers(&format!("{entry}{other}{entry}"), false).unwrap_err();
    let paths: Vec<_> = errors(&report).into_iter().map(|e| e.0.to_owned()).collect();
    assert_eq!(paths, ["workers[1].worker_id_num", "workers[2].worker_id_str", "workers[2].worker_id_num"]);
    assert!(report.to_string().contains("taken by workers[0]"), "{report}");
}

#[test]
fn all_files_are_reported_together() {
    let dir = tempfile::tempdir().unwrap();
    let entry = worker(&format!("{ZMQ}endpoint = \"a:1\"\nextra = 1"));
    let set = |name, file| {
        format!("name = \"{name}\"\nprofile = \"p\"\nkv_block_size = 1\ndiscovery.workers_file = \"{file}\"")
    };
    let (second, third) = (set("t", "b.toml"), set("u", "gone.toml"));
    let text = file(&[("[[workerset]] # second", &second), ("[[workerset]] # third", &third)]);
    let (config, _) = Config::parse(&text, dir.path()).unwrap();
    fs::write(dir.path().join("workers.toml"), &entry).unwrap();
    fs::write(dir.path().join("b.toml"), &entry).unwrap();
    let report = load_workers(&config).unwrap_err();
    let found = errors(&report);
    assert_eq!(found.len(), 3, "{report}");
    assert!(found[0].1.contains("taken by worker set `s`"), "{report}");
    assert!(found[2].1.contains("cannot be read"), "{report}");
    let of: Vec<_> =
        report.errors().iter().map(|e| e.file.as_deref().and_then(Path::file_name).unwrap()).collect();
    assert_eq!(of, ["b.toml", "b.toml", "gone.toml"]);
    let text = report.to_string();
    let starting = |with: &str| text.lines().filter(|line| line.starts_with(with)).count();
    assert_eq!([starting(" "), starting("warning: "), text.lines().count()], [3, 2, 7], "{text}");

    fs::write(dir.path().join("b.toml"), "workers = []").unwrap();
    fs::write(dir.path().join("gone.toml"), "workers = []").unwrap();
    let (sets, warnings) = load_workers(&config).unwrap();
    let sizes: Vec<_> = sets.iter().map(|(set, workers)| (set.name.as_str(), workers.len())).collect();
    assert_eq!(sizes, [("s", 1), ("t", 0), ("u", 0)]);
    assert!(warnings.len() == 1 && warnings[0].contains("workers.toml: `workers[0].extra`"), "{warnings:?}");
}
