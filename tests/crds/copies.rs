//! The definitions in the chart are the generated ones, and `kinfctl crds` prints the same.

use std::{fs, path::Path, process::Command};

use kinference::policy::crd;

const COPIES: &str = "charts/kinference-crds/templates";

#[test]
fn the_chart_has_the_generated_definitions() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join(COPIES);
    let mut generated: Vec<_> = crd::definitions()
        .iter()
        .map(|crd| {
            (format!("{}.yaml", crd.spec.names.plural), crd::yaml(Some(&crd.spec.names.kind)).unwrap())
        })
        .collect();
    generated.sort();
    let files = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> =
        files.map(|name| (name.clone(), fs::read_to_string(dir.join(&name)).unwrap())).collect();
    files.sort();
    let stale: Vec<_> = generated.iter().filter(|copy| !files.contains(copy)).map(|(name, _)| name).collect();
    let regenerate = format!("regenerate them: cargo run --bin kinfctl -- crds --dir {COPIES}");
    assert!(stale.is_empty(), "{stale:?} of {COPIES} differ from the types; {regenerate}");
    assert_eq!(files.len(), generated.len(), "{COPIES} has files that are no definitions");
    assert!(files.iter().all(|(_, text)| !text.contains("{{")), "helm would take `{{{{` for a template");
}

fn kinfctl(args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kinfctl")).args(args).output().unwrap();
    let text = if output.status.success() { output.stdout } else { output.stderr };
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn kinfctl_prints_them() {
    let (ok, all) = kinfctl(&["crds"]);
    assert!(ok && all == crd::yaml(None).unwrap());
    assert_eq!(all.matches("\n---\n").count(), 4, "five documents");
    let (ok, one) = kinfctl(&["crds", "--kind", "InferencePool"]);
    assert!(ok && one == crd::yaml(Some("InferencePool")).unwrap() && all.contains(&one));
    let (ok, why) = kinfctl(&["crds", "--kind", "InferencePoll"]);
    assert!(!ok && why.contains("\"InferencePoll\" is no kind") && why.contains("InferencePool,"), "{why}");
    let dir = tempfile::tempdir().unwrap();
    let (ok, _) = kinfctl(&["crds", "--dir", dir.path().to_str().unwrap()]);
    assert!(ok);
    let written = fs::read_to_string(dir.path().join("inferencepools.yaml")).unwrap();
    assert_eq!(written, one);
}
