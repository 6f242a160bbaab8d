//! Files that a command is given: paths, directories, patterns and standard input, read in order.
//!
//! Invariant: each file once; of a directory and a pattern, by name.

use std::{
    collections::BTreeSet,
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

use kinference::files;

use crate::findings::{Finding, Severity};

/// A file's name as it was given, and what it holds.
#[derive(Debug)]
pub struct Source {
    /// Its path; `-` is standard input.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The files of a directory that are meant.
pub type Wanted = fn(&str) -> bool;

/// Any YAML file.
pub fn is_yaml(name: &str) -> bool {
    [".yaml", ".yml"].iter().any(|end| name.ends_with(end))
}

/// A file of test cases, by its name.
pub fn is_test(name: &str) -> bool {
    [".test.yaml", ".test.yml"].iter().any(|end| name.ends_with(end))
}

/// Reads what is given; what can't be read is a finding.
pub fn read(given: &[String], wanted: Wanted) -> (Vec<Source>, Vec<Finding>) {
    let (mut sources, mut findings, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for name in given {
        let texts = match paths(name, wanted) {
            Ok(paths) if paths.is_empty() => Err(io::Error::other("no such files")),
            Ok(paths) => Ok(paths.into_iter().filter(|path| seen.insert(path.clone())).collect::<Vec<_>>()),
            Err(error) => Err(error),
        };
        match texts {
            Ok(paths) => {
                for path in paths {
                    match text(&path) {
                        Ok(text) => sources.push(Source { name: path.display().to_string(), text }),
                        Err(error) => findings.push(unreadable(&path.display().to_string(), &error)),
                    }
                }
            }
            Err(error) => findings.push(unreadable(name, &error)),
        }
    }
    (sources, findings)
}

fn unreadable(name: &str, error: &io::Error) -> Finding {
    Finding {
        severity: Severity::Error,
        file: Some(name.to_owned()),
        place: None,
        path: String::new(),
        message: format!("cannot be read: {error}"),
    }
}

fn text(path: &Path) -> io::Result<String> {
    if path.as_os_str() != "-" {
        return fs::read_to_string(path);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).map(|_| text)
}

/// A file, the wanted ones under a directory, or those that a pattern fits.
fn paths(given: &str, wanted: Wanted) -> io::Result<Vec<PathBuf>> {
    let path = Path::new(given);
    if !path.is_dir() {
        return files::matching(path);
    }
    let mut out = Vec::new();
    under(path, wanted, &mut out)?;
    out.sort();
    Ok(out)
}

fn under(dir: &Path, wanted: Wanted, out: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            under(&path, wanted, out)?;
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(wanted) {
            out.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_is_read_once_and_the_missing_are_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("deep")).unwrap();
        for name in ["b.yaml", "a.yml", "deep/c.yaml", "d.txt", "e.test.yaml"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let texts = |given: &[String], wanted: Wanted| {
            let (sources, findings) = read(given, wanted);
            (sources.into_iter().map(|one| one.text).collect::<Vec<_>>(), findings.len())
        };
        assert_eq!(
            texts(&[at("")], is_yaml),
            (["a.yml", "b.yaml", "deep/c.yaml", "e.test.yaml"].map(str::to_owned).to_vec(), 0)
        );
        assert_eq!(texts(&[at("")], is_test).0, ["e.test.yaml"]);
        assert_eq!(
            texts(&[at("d.txt"), at("*.t?t"), at("missing"), at("*.none")], is_yaml),
            (vec!["d.txt".into()], 2)
        );
    }
}
