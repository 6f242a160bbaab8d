//! `kinfctl config check`: all problems at once, each with its file and key.

use serde_json::Value;

use super::run::{Snapshots, kinfctl};

const SAMPLE: &str = "../../config/kinference.toml";

#[test]
fn what_is_wrong_is_said_at_once() {
    let mut snapshots = Snapshots::default();
    for name in ["fine", "keys", "syntax", "workers", "missing", "policies"] {
        let ran = kinfctl(&["config", "check", &format!("files/{name}.toml")]);
        // Where we are differs from machine to machine.
        let here = format!("{}/tests/kinfctl/", env!("CARGO_MANIFEST_DIR"));
        snapshots.hold(&format!("config/{name}.txt"), &ran.whole().replace(&here, ""));
    }
    snapshots.done();
}

#[test]
fn the_shipped_configuration_is_fine() {
    let ran = kinfctl(&["config", "check", SAMPLE]);
    assert_eq!((ran.code, ran.out.as_str()), (0, &*format!("{SAMPLE}: fine\n")));
}

#[test]
fn programs_get_objects() {
    let ran = kinfctl(&["config", "check", "files/keys.toml", "--output", "json"]);
    let found: Vec<Value> = ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(ran.code, 1);
    let error = found.iter().find(|one| one["path"] == "metrics_poll_ms").unwrap();
    assert_eq!((&error["severity"], &error["file"]), (&"error".into(), &"files/keys.toml".into()));
    assert!(error["message"].as_str().unwrap().starts_with("is \"soon\", but must be"), "{error}");
}

#[test]
fn what_is_in_force_can_be_checked_again() {
    let ran = kinfctl(&["config", "check", SAMPLE, "--print"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("effective.toml");
    std::fs::write(&file, &ran.out).unwrap();
    let again = kinfctl(&["config", "check", file.to_str().unwrap(), "--print"]);
    assert_eq!((again.code, again.out), (0, ran.out));

    let broken = kinfctl(&["config", "check", "files/keys.toml", "--print"]);
    assert_eq!((broken.code, broken.out.as_str()), (1, ""));
    assert!(broken.err.contains("metrics_poll_ms"), "{}", broken.err);
}
