//! Test files: `kind: PolicyTest`, cases of a fleet, a request and what should become of it.

use std::{collections::BTreeSet, fmt, path::Path};

use serde::Deserialize;
use serde_saphyr::Spanned;

use super::fleet::{self, Fleet};
use crate::findings::{Finding, Severity};

/// A document of a test file.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TestFile {
    /// Says what it is.
    #[serde(rename = "kind")]
    _kind: Kind,
    policies: Vec<String>,
    configuration: Option<String>,
    pool: String,
    /// The workers of every case.
    #[serde(default)]
    pub fleet: Fleet,
    /// The cases.
    pub cases: Vec<Spanned<Case>>,
}

/// What decides, and how predictions are made.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Files of resources, directories or patterns, seen from the test file.
    pub policies: Vec<String>,
    /// A configuration whose profiles and worker sets predictions are made with, seen from the test file.
    pub configuration: Option<String>,
    /// The pool that requests come to.
    pub pool: String,
}

#[derive(Debug, Deserialize)]
enum Kind {
    PolicyTest,
}

/// A case, read aloud: it ..., given ..., when ..., then ...
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// What the policies do, in words.
    pub it: String,
    /// What is otherwise with some workers.
    #[serde(default)]
    pub given: Fleet,
    /// The request.
    pub when: Asked,
    /// What becomes of it.
    pub then: Then,
}

/// A request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Asked {
    /// The model that it asks for.
    pub model: String,
    /// Whose it is. Unset: nobody's.
    pub tenant: Option<String>,
    /// Its tags.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Tokens of its prompt. Unset: they are not known, and nothing is predicted of its prefill.
    pub prompt_tokens: Option<u32>,
    /// Tokens that its answer may have. Unset: it does not say.
    pub max_tokens: Option<u32>,
    /// Its path. Unset: that of chat completions.
    pub path: Option<String>,
}

/// What is expected. All that is said has to be so.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Then {
    /// It goes to this worker or provider, or to one of these by chance.
    pub picks: Option<Names>,
    /// These are left, in this order.
    pub order: Option<Vec<String>>,
    /// It is rejected with this status.
    pub rejects: Option<Rejected>,
    /// This rule decides; `none`: none does.
    pub rule: Option<String>,
}

/// One name or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Names {
    /// One.
    One(String),
    /// One of several.
    AnyOf(Vec<String>),
}

impl Names {
    /// All of them.
    pub fn all(&self) -> BTreeSet<&str> {
        match self {
            Self::One(name) => [name.as_str()].into(),
            Self::AnyOf(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// A rejection.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Rejected {
    /// With this HTTP status.
    Status(u16),
    /// And with this in its message.
    With {
        /// HTTP status.
        status: u16,
        /// Part of the message.
        message: String,
    },
}

impl Rejected {
    /// Whether it is that.
    pub fn fits(&self, status: u16, message: &str) -> bool {
        match self {
            Self::Status(wanted) => *wanted == status,
            Self::With { status: wanted, message: part } => {
                *wanted == status && message.contains(part.as_str())
            }
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::With { status, message } => write!(f, "{status}, ... {message} ..."),
        }
    }
}

impl Then {
    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.picks.is_none() && self.order.is_none() && self.rejects.is_none() && self.rule.is_none()
    }
}

impl TestFile {
    /// What decides over its cases.
    pub fn setting(&self) -> Setting {
        Setting {
            policies: self.policies.clone(),
            configuration: self.configuration.clone(),
            pool: self.pool.clone(),
        }
    }

    /// The fleet of a case.
    pub fn fleet_of(&self, case: &Case) -> Fleet {
        fleet::changed(&self.fleet, &case.given)
    }
}

/// The documents of a test file.
///
/// # Errors
/// It is none.
pub fn read_tests(name: &str, text: &str) -> Result<Vec<TestFile>, Box<Finding>> {
    serde_saphyr::from_multiple(text).map_err(|error| {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let text = error.without_snippet().to_string();
        // The place is said before it.
        let said = text.rsplit_once(" at line ").map_or(&*text, |(said, _)| said);
        Box::new(Finding {
            severity: Severity::Error,
            file: Some(name.to_owned()),
            place: error.location().map(|at| (number(at.line()), number(at.column()))),
            path: String::new(),
            message: format!("is no test file: {said}"),
        })
    })
}

/// A path that a test file names.
pub fn beside(test_file: &str, named: &str) -> String {
    let dir = Path::new(test_file).parent().unwrap_or(Path::new(""));
    dir.join(named).display().to_string()
}
