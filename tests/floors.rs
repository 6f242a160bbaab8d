//! Holds the floors: a room of the library imports only from rooms below it, as `src/lib.rs` lists them.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Rooms on the same floor may not import each other either.
const FLOORS: &[&[&str]] = &[
    &["types"],
    &["config", "observe", "files"],
    &["fleet"],
    &["cache", "load", "prompt", "policy"],
    &["route", "roster"],
    &["pipeline"],
    &["kubernetes"],
    &["enforce", "ingest", "discovery", "serve", "admin"],
    &["app"],
];

fn floor(room: &str) -> Option<usize> {
    FLOORS.iter().position(|rooms| rooms.contains(&room))
}

fn rust_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// The rooms that a source names after `crate::`, braces of a grouped import included.
fn imports(source: &str) -> Vec<String> {
    let word = |s: &str| s.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let mut out = Vec::new();
    for (at, _) in source.match_indices("crate::") {
        let rest = &source[at + "crate::".len()..];
        let Some(group) = rest.strip_prefix('{') else {
            out.push(word(rest));
            continue;
        };
        let mut depth = 0;
        let mut name = String::new();
        for c in group.chars() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => out.push(word(std::mem::take(&mut name).trim())),
                c if depth == 0 => name.push(c),
                _ => {}
            }
        }
        out.push(word(name.trim()));
    }
    out.retain(|name| !name.is_empty());
    out
}

#[test]
fn rooms_import_only_from_below() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    rust_files(&src, &mut files);
    let mut wrong = Vec::new();
    for file in files.iter().filter(|f| !f.starts_with(src.join("bin"))) {
        let inside = file.strip_prefix(&src).unwrap();
        let room = inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
        let Some(own) = floor(room) else {
            assert!(["lib", "main"].contains(&room), "{} is in no room of the map", inside.display());
            continue;
        };
        for import in imports(&fs::read_to_string(file).unwrap()) {
            let below =
                floor(&import).unwrap_or_else(|| panic!("{}: crate::{import} is no room", inside.display()));
            if import != room && below >= own {
                wrong.push(format!("{}: `{room}` may not import `{import}`", inside.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn grouped_imports_are_read() {
    assert_eq!(imports("use crate::{types::{A, B}, config::X};"), ["types", "config"]);
    assert_eq!(imports("let x = crate::route::pick();"), ["route"]);
}
