//! What is wrong with a configuration file: errors that stop the start, warnings that don't.
//!
//! Invariant: a report is readable whatever the file holds: one line an error, long values cut short.

use std::{fmt, path::Path, sync::Arc};

use toml::Value;

/// Keys that were ignored, one readable line each with the key's path and the nearest known key.
pub type Warnings = Vec<String>;

/// What came of reading: the thing and warnings about it, or every error.
pub type Loaded<T> = Result<(T, Warnings), ConfigErrors>;

/// Characters of a value or a key that a report shows.
const SHOWN_CHARS: usize = 80;
/// Longer keys are nobody's typing mistake; comparing them with the known ones would only cost time.
const COMPARED_BYTES: usize = 64;
/// Similarity (0..1) from which a known key counts as what was meant.
const NEAR: f64 = 0.6;

/// One error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if path.is_empty() { String::new() } else { format!("`{path}` ") })]
pub struct ConfigError {
    /// The file, where the text came from one.
    pub file: Option<Arc<Path>>,
    /// The key, such as `profile[1].predictor.base_ms`; empty when the file as a whole is meant.
    pub path: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The file can't be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// It is no TOML. Line and column count from 1.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What the parser says.
        message: String,
    },
    /// A required key is not there.
    #[error("is required: {accepted}")]
    Missing {
        /// What would do.
        accepted: String,
    },
    /// A value that does not do.
    #[error("is {value}, but must be {accepted}")]
    Rejected {
        /// The value as written.
        value: String,
        /// What would do.
        accepted: String,
    },
    /// A top-level key that does not exist.
    #[error("is no configuration key{}; accepted: {accepted}", did_you_mean(nearest.as_deref()))]
    Unknown {
        /// All keys that exist there.
        accepted: String,
        /// The one that was probably meant.
        nearest: Option<String>,
    },
}

/// Every error of one or several files, and what was ignored in them: often the misspelt key that is missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    errors: Vec<ConfigError>,
    warnings: Warnings,
}

impl ConfigErrors {
    /// At least one; in the order in which they were found, those of a file side by side.
    pub fn errors(&self) -> &[ConfigError] {
        &self.errors
    }

    /// What was ignored.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The same errors, said to be of `file`.
    #[must_use]
    pub fn in_file(mut self, file: &Path) -> Self {
        let file: Arc<Path> = file.into();
        self.errors.iter_mut().for_each(|error| error.file = Some(file.clone()));
        self.warnings = named(&file, self.warnings);
        self
    }
}

/// Warnings, said to be of `file`.
pub(super) fn named(file: &Path, warnings: Warnings) -> Warnings {
    warnings.into_iter().map(|warning| format!("{}: {warning}", file.display())).collect()
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, of_file) in self.errors.chunk_by(|a, b| a.file == b.file).enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match of_file.first().and_then(|error| error.file.as_deref()) {
                Some(file) => write!(f, "{}: ", file.display())?,
                None => write!(f, "configuration: ")?,
            }
            write!(f, "{} error{}", of_file.len(), if of_file.len() == 1 { "" } else { "s" })?;
            for error in of_file {
                write!(f, "\n  {error}")?;
            }
        }
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// Errors and warnings while a file is being read.
#[derive(Debug, Default)]
pub(super) struct Report {
    errors: Vec<ConfigError>,
    pub(super) warnings: Warnings,
}

impl Report {
    pub(super) fn push(&mut self, path: impl Into<String>, problem: Problem) {
        self.errors.push(ConfigError { file: None, path: path.into(), problem });
    }

    /// Takes over what is wrong with another file.
    pub(super) fn merge(&mut self, other: ConfigErrors) {
        self.errors.extend(other.errors);
        self.warnings.extend(other.warnings);
    }

    /// A value that does not do.
    pub(super) fn reject(&mut self, path: impl Into<String>, value: &Value, accepted: impl Into<String>) {
        self.push(path, Problem::Rejected { value: shown(value), accepted: accepted.into() });
    }

    /// Whether nothing was wrong so far with any key that `is_meant` picks: else what follows from it is not reported.
    pub(super) fn clean(&self, is_meant: impl Fn(&str) -> bool) -> bool {
        !self.errors.iter().any(|error| is_meant(&error.path))
    }

    /// `value` and the warnings, unless there were errors.
    pub(super) fn done<T>(self, value: T) -> Loaded<T> {
        if self.errors.is_empty() {
            Ok((value, self.warnings))
        } else {
            Err(ConfigErrors { errors: self.errors, warnings: self.warnings })
        }
    }
}

/// A value on one line, cut short.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", shortened(text)),
        other => shortened(&other.to_string()),
    }
}

/// A key as one writes it in TOML, cut short.
pub(super) fn shown_key(key: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(bare) { shortened(key) } else { format!("\"{}\"", shortened(key)) }
}

/// Text on one line, at most [`SHOWN_CHARS`] of it, with its size when something was cut off.
pub(super) fn shortened(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars().take(SHOWN_CHARS) {
        if c.is_control() { out.extend(c.escape_default()) } else { out.push(c) }
    }
    if text.chars().nth(SHOWN_CHARS).is_some() {
        out.push_str(&format!("... ({} bytes)", text.len()));
    }
    out
}

/// The known key that was probably meant by `key`.
pub(super) fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    if key.len() > COMPARED_BYTES {
        return None;
    }
    let similarity = |candidate: &str| strsim::normalized_damerau_levenshtein(key, candidate);
    known
        .iter()
        .copied()
        .filter(|k| similarity(k) >= NEAR)
        .max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}

/// ` (did you mean ...?)`, or nothing.
pub(super) fn did_you_mean(nearest: Option<&str>) -> String {
    nearest.map(|key| format!(" (did you mean `{key}`?)")).unwrap_or_default()
}
