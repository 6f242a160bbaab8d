//! Holds the sizes: a source has at most 400 lines (a test 600), and opens by saying what it is.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    path::{Path, PathBuf},
};

const SOURCE: usize = 400;
const TEST: usize = 600;

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("fixtures") {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "py" || e == "yaml") {
            out.push(path);
        }
    }
}

fn limit(inside: &Path) -> usize {
    let name = inside.file_stem().unwrap().to_str().unwrap();
    let test = inside.starts_with("tests") || name == "tests" || name.ends_with("_tests");
    if test { TEST } else { SOURCE }
}

#[test]
fn files_are_small_and_say_what_they_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for dir in ["src", "tests", "examples", "benches", "envoy", ".ci"] {
        files(&root.join(dir), &mut found);
    }
    let mut wrong = Vec::new();
    for path in found {
        let inside = path.strip_prefix(root).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let (lines, limit) = (text.lines().count(), limit(inside));
        if lines > limit {
            wrong.push(format!("{}: {lines} lines, at most {limit}", inside.display()));
        }
        if inside.extension().is_some_and(|e| e == "rs") && !text.starts_with("//!") {
            wrong.push(format!("{}: does not open with //!", inside.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
