//! Files of resources, as they are in git: read, compiled, and everything said with file and line.

mod yaml;

use std::{collections::BTreeSet, fmt, path::Path, sync::Arc};

use serde_json::Value;

use self::yaml::Document;
pub use self::yaml::Position;
use super::{
    compile::{self, Policies, Weight},
    crd,
    problem::{FieldPath, Problem},
    resource::{self, Resource},
};

/// Similarity (0..1) from which another group is a slip rather than another one.
const SLIP: f64 = 0.93;

/// What the files make.
#[derive(Debug, Default)]
pub struct Manifests {
    /// The resources that are sound.
    pub resources: Vec<Resource>,
    /// What is in force.
    pub policies: Policies,
    /// Everything that is wrong or suspicious, by file and line.
    pub remarks: Vec<Remark>,
    /// Where each of the resources is.
    origins: Vec<Origin>,
}

impl Manifests {
    /// Where the resource of that index is: `file:line`.
    pub fn place(&self, resource: usize) -> String {
        self.origins[resource].place()
    }

    /// Something else about the resource of that index.
    pub fn remark(&self, resource: usize, problem: &Problem, severity: Severity) -> Remark {
        self.origins[resource].remark(problem, severity)
    }
}

/// Something that is wrong or suspicious.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    /// The file.
    pub file: Arc<str>,
    /// Where in it; `None`: it is about the whole file.
    pub at: Option<Position>,
    /// Whether it can stay.
    pub severity: Severity,
    /// It names what is not in the files, but may be declared elsewhere.
    pub unresolved: bool,
    /// What it is.
    pub message: String,
}

/// Whether something can stay as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It can't.
    Error,
    /// It hardly does what was meant.
    Warning,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        f.write_str(&self.file)?;
        if let Some(Position { line, column }) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {severity}: {}", self.message)
    }
}

impl Remark {
    /// One about a whole file.
    pub fn of_file(file: &Path, severity: Severity, message: String) -> Self {
        Self { file: file.display().to_string().into(), at: None, severity, unresolved: false, message }
    }
}

/// Where a resource comes from.
#[derive(Debug)]
struct Origin {
    file: Arc<str>,
    document: Document,
}

impl Origin {
    fn place(&self) -> String {
        format!("{}:{}", self.file, self.document.position(&FieldPath::default()).line)
    }

    fn remark(&self, problem: &Problem, severity: Severity) -> Remark {
        let text = |pointer| self.document.value.pointer(pointer).and_then(Value::as_str).unwrap_or("?");
        let message = format!("{} {}: {problem}", text("/kind"), text("/metadata/name"));
        let at = Some(self.document.position(&problem.path));
        Remark { file: self.file.clone(), at, severity, unresolved: false, message }
    }
}

/// Reads files, given as names and texts. `worker_sets` are the ones that exist besides those in the files; `None`: it
/// is not known which exist.
pub fn read<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    worker_sets: Option<&BTreeSet<String>>,
) -> Manifests {
    let mut out = Manifests::default();
    let mut origins = Vec::new();
    for (file, text) in files {
        let file: Arc<str> = file.into();
        match yaml::documents(text) {
            Ok(documents) => {
                for document in documents.into_iter().filter(|document| is_meant(&document.value)) {
                    let origin = Origin { file: file.clone(), document };
                    match resource::read(origin.document.value.clone()) {
                        Ok(resource) => {
                            out.resources.push(resource);
                            origins.push(origin);
                        }
                        Err(problems) => {
                            let remarks =
                                problems.iter().map(|problem| origin.remark(problem, Severity::Error));
                            out.remarks.extend(remarks);
                        }
                    }
                }
            }
            Err(syntax) => {
                let message = format!("is no YAML: {}", syntax.message);
                let severity = Severity::Error;
                out.remarks.push(Remark { file, at: Some(syntax.at), severity, unresolved: false, message });
            }
        }
    }
    let (policies, findings) = compile::compile(&out.resources, worker_sets);
    out.policies = policies;
    out.remarks.extend(findings.iter().map(|finding| {
        let severity = match finding.weight {
            Weight::Suspicious => Severity::Warning,
            Weight::Unresolved | Weight::Conflict => Severity::Error,
        };
        let remark = origins[finding.resource].remark(&finding.problem, severity);
        Remark { unresolved: finding.weight == Weight::Unresolved, ..remark }
    }));
    out.origins = origins;
    out.remarks.sort();
    out
}

/// Whether a document is one of ours, rightly written or not; others may share the file.
fn is_meant(document: &Value) -> bool {
    let text = |field: &str| document.get(field).and_then(Value::as_str);
    let group = text("apiVersion").unwrap_or_default().split('/').next().unwrap_or_default();
    let no_kind_of_others =
        text("apiVersion").is_none() && text("kind").is_none_or(|kind| crd::kinds().contains(&kind));
    no_kind_of_others || strsim::jaro_winkler(group, crd::GROUP) >= SLIP
}

#[cfg(test)]
mod tests;
