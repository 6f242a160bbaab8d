//! Paths whose last part may be a pattern: `*` is anything in a name, and `?` any one character.
//!
//! A path that exists is meant as it is, whatever is in its name.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// What a path stands for, by name: itself, or the files that fit its pattern.
///
/// # Errors
/// The directory of a pattern can't be read.
pub fn matching(given: &Path) -> io::Result<Vec<PathBuf>> {
    let name = given.file_name().and_then(|name| name.to_str());
    let Some(pattern) = name.filter(|name| name.contains(['*', '?']) && !given.exists()) else {
        return Ok(vec![given.to_owned()]);
    };
    let dir = given.parent().unwrap_or(Path::new(""));
    let mut out = Vec::new();
    for entry in fs::read_dir(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })? {
        let name = entry?.file_name();
        if fits(pattern.as_bytes(), name.as_encoded_bytes()) {
            out.push(dir.join(name));
        }
    }
    out.sort();
    Ok(out)
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=name.len()).any(|n| fits(rest, &name[n..])),
        (Some((b'?', pattern)), Some((_, name))) => fits(pattern, name),
        (Some((wanted, pattern)), Some((is, name))) => wanted == is && fits(pattern, name),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_of_names() {
        for (pattern, name) in [("*.yaml", "a.yaml"), ("a?.*", "ab.yml"), ("*", ".x"), ("a*b*c", "aXbYc")] {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("*.yaml", "a.yml"), ("a?", "a"), ("", "a"), ("a*b", "ac")] {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
    }

    #[test]
    fn what_has_no_pattern_is_meant_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yaml", "c?.yaml"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        let found = |name: &str| {
            let found = matching(&dir.path().join(name)).unwrap();
            let names = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
            names.collect::<Vec<_>>()
        };
        assert_eq!(found("?.yaml"), ["a.yaml", "b.yaml"]);
        assert_eq!(found("c?.yaml"), ["c?.yaml"]);
        assert_eq!(found("missing.yaml"), ["missing.yaml"]);
        assert!(matching(&dir.path().join("none/*.yaml")).is_err());
    }
}
