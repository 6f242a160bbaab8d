//! What a check found: problems with their place, for people (`file:line:column: severity: message`) and for programs.

use std::{fmt, io, io::Write};

use serde_json::{Value, json};

use crate::output::{self, Format, Outcome, Tone};

/// The option of commands that check something.
#[derive(Clone, Copy, clap::Args)]
pub struct Report {
    /// How findings are printed: as lines of text (`table`), as one JSON object a line, or as YAML documents.
    #[arg(
        long,
        short,
        value_name = "FORMAT",
        value_enum,
        default_value = "table",
        hide_possible_values = true
    )]
    output: Format,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It can't stay so.
    Error,
    /// It works, but probably is not what was meant.
    Warning,
}

impl Severity {
    fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Error => Tone::Bad,
            Self::Warning => Tone::Warning,
        }
    }
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The file, where it is of one.
    pub file: Option<String>,
    /// Line and column, from 1, where they are known.
    pub place: Option<(usize, usize)>,
    /// The field or key; empty when the whole file is meant.
    pub path: String,
    /// What is wrong, after the path.
    pub message: String,
}

impl Finding {
    /// For people.
    pub fn line(&self, colours: bool) -> String {
        let place = self.place.map(|(line, column)| format!(":{line}:{column}")).unwrap_or_default();
        let file = self.file.as_deref().map(|file| format!("{file}{place}: ")).unwrap_or_default();
        let label = self.severity.label();
        let label = if colours { self.severity.tone().paint(label) } else { label.to_owned() };
        format!("{file}{label}: {self}")
    }

    /// For programs.
    pub fn object(&self) -> Value {
        json!({
            "severity": self.severity.label(),
            "file": self.file,
            "line": self.place.map(|(line, _)| line),
            "column": self.place.map(|(_, column)| column),
            "path": self.path,
            "message": self.message,
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "`{}` ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl Report {
    /// Prints findings, and for people what they come to; `what` was checked.
    pub fn print(self, findings: &[Finding], what: &str) -> anyhow::Result<Outcome> {
        match self.output {
            Format::Table => {
                findings.iter().try_for_each(|finding| output::text(&finding.line(output::colours())))?;
                output::text(&summary(findings, what))?;
            }
            format => findings.iter().try_for_each(|finding| output::object(format, &finding.object()))?,
        }
        Ok(outcome(findings))
    }
}

/// Prints findings on stderr, where stdout is for something else.
pub fn print_aside(findings: &[Finding]) -> anyhow::Result<Outcome> {
    findings.iter().try_for_each(|finding| writeln!(io::stderr(), "{}", finding.line(false)))?;
    Ok(outcome(findings))
}

fn outcome(findings: &[Finding]) -> Outcome {
    let errors = findings.iter().any(|finding| finding.severity == Severity::Error);
    if errors { Outcome::Problems } else { Outcome::Fine }
}

fn summary(findings: &[Finding], what: &str) -> String {
    let count = |severity: Severity| findings.iter().filter(|one| one.severity == severity).count();
    let of = |severity: Severity| match (count(severity), severity.label()) {
        (0, _) => None,
        (1, label) => Some(format!("1 {label}")),
        (n, label) => Some(format!("{n} {label}s")),
    };
    let parts: Vec<_> = [Severity::Error, Severity::Warning].into_iter().filter_map(of).collect();
    format!("{what}: {}", if parts.is_empty() { "fine".to_owned() } else { parts.join(", ") })
}
