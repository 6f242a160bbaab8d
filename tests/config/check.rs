//! The command line: `--check`, its output and its exit codes.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
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

#[test]
fn what_is_not_there_yet_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let policy = "enabled = true\nfiles = [\"p.yaml\"]\nsecrets_dir = \"secrets\"";
    let log = "output = \"file\"\nfile = \"logs/decisions.jsonl\"";
    fs::write(at("k.toml"), file(&[("[policy]", policy), ("[decision_log]", log)])).unwrap();
    fs::write(at("workers.toml"), "workers = []").unwrap();
    let provider = "apiVersion: kinference.buoyant.io/v1alpha1\nkind: InferenceProvider\nmetadata: {name: cloud}\nspec:\n  \
                    api: OpenAI\n  host: h\n  models: [{name: m}]\n  credentials:\n    mode: Header\n    \
                    secretRef: {name: keys, key: cloud}\n";
    fs::write(at("p.yaml"), provider).unwrap();
    let said = || {
        let output = check(&at("k.toml"));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let (first, secret) = (said(), "key `cloud` of Secret default/keys, which does not exist");
    for word in [
        "k.toml: `decision_log.file` is",
        "secrets: warning: `policy.secrets_dir` is no directory",
        "p.yaml:10:5: warning: InferenceProvider cloud: `spec.credentials.secretRef` names ",
        secret,
    ] {
        assert!(first.contains(word), "{word:?} is not in {first}");
    }
    fs::create_dir(at("logs")).unwrap();
    fs::create_dir_all(at("secrets/keys")).unwrap();
    let second = said();
    assert!(second.contains(secret) && second.lines().count() == 1, "{second}");
    fs::write(at("secrets/keys/cloud"), "sk-1").unwrap();
    fs::set_permissions(at("secrets/keys/cloud"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(said(), "");
    assert_eq!(fs::read_dir(at("logs")).unwrap().count(), 0, "nothing is left behind");
}
