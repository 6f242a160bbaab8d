//! Where the programs are that tests run: named by an environment variable, else what `.ci/tools.py` put into `.cache/`.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

/// The Envoy to test with, or `None` after saying that there is none.
pub fn envoy() -> Option<PathBuf> {
    tool("envoy", "KINFERENCE_TEST_ENVOY")
}

/// The program of that name to test with, or `None` after saying that there is none.
pub fn tool(name: &str, variable: &str) -> Option<PathBuf> {
    if let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()) {
        return Some(path.into());
    }
    let cache = Path::new(env!("CARGO_MANIFEST_DIR")).join(".cache").join(name);
    let versions = fs::read_dir(cache).into_iter().flatten();
    let found = versions.map(|version| version.unwrap().path().join(name)).find(|path| path.is_file());
    if found.is_none() {
        // Past the test harness, which swallows what `eprintln!` says.
        let line = format!("SKIPPED: no {name}; `make test` fetches one\n");
        std::io::stderr().write_all(line.as_bytes()).unwrap();
    }
    found
}
