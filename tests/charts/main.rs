//! The Helm charts and the samples: linted, rendered, held to what is checked in, to the configuration that Kinference reads,
//! and to a real API server.
//!
//! helm and kubectl: `KINFERENCE_TEST_HELM` and `KINFERENCE_TEST_KUBECTL`, else what `.ci/tools.py` put into `.cache/`,
//! else those tests are skipped with one line.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../apiserver/mod.rs"]
mod apiserver;
mod cluster;
mod configuration;
mod documented;
mod helm;
mod life;
mod lint;
mod rbac;
mod readme;
mod refused;
mod renewable;
mod running;
mod schema;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../tools/mod.rs"]
mod tools;
mod watching;

use std::{
    fs,
    path::{Path, PathBuf},
};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The YAML files right in a folder, sorted.
fn yaml_files(dir: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(root().join(dir)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|e| e == "yaml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{dir}");
    files
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
