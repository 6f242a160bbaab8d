//! The command line: `--check`, its output and its exit codes.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use kinference::config::Config;

use crate::file;

fn check(config: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kinference"))
        .arg("--check")
        .arg("--config")
        .arg(config)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_samples_are_valid_and_print_back() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/kinference.toml");
    let output = check(&sample);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
    let (config, warnings) = Config::load(&sample).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(Config::parse(text(&output.stdout), Path::new("")).unwrap(), (config, vec![]));
}

#[test]
fn what_does_not_do_is_reported_with_exit_code_64() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("k.toml");
    let refused = |words: &[&str]| {
        let output = check(&config);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(64), ""));
        for word in words {
            assert!(text(&output.stderr).contains(word), "{word:?} is not in {}", text(&output.stderr));
        }
    };
    refused(&["k.toml: 1 error", "cannot be read"]);
    fs::write(&config, b"listen = \"\xff\"").unwrap();
    refused(&["line 1, column 11: not UTF-8"]);
    fs::write(&config, file(&[("", "metrics_poll_ms = 0"), ("[metrics]", "tenant_labels = \"some\"")]))
        .unwrap();
    refused(&[
        "2 errors",
        "`metrics_poll_ms` is 0",
        "`metrics.tenant_labels` is \"some\", but must be \"none\"",
    ]);
    fs::write(&config, file(&[])).unwrap();
    refused(&["workers.toml: 1 error", "cannot be read"]);
    fs::write(dir.path().join("workers.toml"), "workers = []\nx = 1").unwrap();
    let output = check(&config);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("workers.toml: `x` is no known key"), "{}", text(&output.stderr));
}

#[test]
fn policy_files_are_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("k.toml");
    fs::write(&config, file(&[("[policy]", "enabled = true\nfiles = [\"p/*.yaml\"]")])).unwrap();
    fs::write(dir.path().join("workers.toml"), "workers = []").unwrap();
    fs::create_dir(dir.path().join("p")).unwrap();
    assert_eq!(check(&config).status.code(), Some(0), "there may be none yet");
    let text_of_pool =
        "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferencePool\nmetadata: {name: a}\nspec: {}\n";
    fs::write(dir.path().join("p/pool.yaml"), text_of_pool).unwrap();
    let output = check(&config);
    assert_eq!(output.status.code(), Some(64));
    let said = text(&output.stderr);
    assert!(said.contains("p/pool.yaml:4:1: error: InferencePool a: `spec.models` "), "{said}");
}
