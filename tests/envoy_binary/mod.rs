//! Where the tests' Envoy is: `KINFERENCE_TEST_ENVOY`, else what `.ci/tools.py envoy` put into `.cache/`.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

/// The Envoy to test with, or `None` after saying that there is none.
pub fn envoy() -> Option<PathBuf> {
    if let Some(path) = env::var_os("KINFERENCE_TEST_ENVOY") {
        return Some(path.into());
    }
    let versions =
        fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache/envoy")).into_iter().flatten();
    let found = versions.map(|version| version.unwrap().path().join("envoy")).find(|path| path.is_file());
    if found.is_none() {
        // Past the test harness, which swallows what `eprintln!` says.
        std::io::stderr().write_all(b"SKIPPED: no Envoy; `make test` fetches one\n").unwrap();
    }
    found
}
