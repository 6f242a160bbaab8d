//! What is wrong with a resource: where, and what is accepted there.

use std::fmt;

/// Where in a resource: field names and indices, from its root.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Part {
    Field(String),
    Index(usize),
}

impl FieldPath {
    /// The path of fields `a.b[0].c`; inverse of what is displayed, for names without dots and brackets.
    pub fn of(text: &str) -> Self {
        let parts = text.split(['.', '[', ']']).filter(|part| !part.is_empty());
        Self(parts.map(|part| part.parse().map_or_else(|_| Part::Field(part.into()), Part::Index)).collect())
    }

    /// A field of what is at this path.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        self.with(Part::Field(name.into()))
    }

    /// An item of the list at this path.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        self.with(Part::Index(index))
    }

    /// `inside`, seen from the place that this path is of.
    #[must_use]
    pub fn join(&self, inside: &Self) -> Self {
        Self(self.0.iter().chain(&inside.0).cloned().collect())
    }

    /// What contains it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        self.0.split_last().map(|(_, rest)| Self(rest.to_vec()))
    }

    fn with(&self, part: Part) -> Self {
        Self(self.0.iter().cloned().chain([part]).collect())
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in self.0.iter().enumerate() {
            match part {
                Part::Field(name) if n == 0 => f.write_str(name)?,
                Part::Field(name) => write!(f, ".{name}")?,
                Part::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("`{path}` {message}")]
pub struct Problem {
    /// Where.
    pub path: FieldPath,
    /// What, and what is accepted; goes on after the path.
    pub message: String,
}

impl Problem {
    /// One at `path`.
    pub fn new(path: FieldPath, message: impl Into<String>) -> Self {
        Self { path, message: message.into() }
    }
}

/// All problems in one line, for a condition's message.
pub fn in_one_line(problems: &[Problem]) -> String {
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("; ")
}
