//! `bad.yaml`: manifests that are wrong in one place, with the words that both verdicts have to have.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::manifests::one;

/// One mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    #[serde(skip)]
    pub kind: String,
    /// Where, as a JSON pointer into the spec.
    pub at: String,
    /// What is there; null: nothing.
    pub put: Value,
    #[serde(default)]
    server: Vec<String>,
    #[serde(default)]
    offline: Vec<String>,
    #[serde(default)]
    both: Vec<String>,
}

impl Case {
    /// The manifest with the mistake.
    pub fn manifest(&self) -> Value {
        let mut manifest = one(&self.kind);
        let (parent, name) = self.at.rsplit_once('/').unwrap();
        match manifest["spec"].pointer_mut(parent).unwrap_or_else(|| panic!("{}", self.at)) {
            Value::Array(items) => items.push(self.put.clone()),
            Value::Object(fields) if self.put.is_null() => drop(fields.remove(name)),
            other => other[name] = self.put.clone(),
        }
        manifest
    }

    /// Words of the API server and of ours.
    pub fn words(&self) -> [Vec<String>; 2] {
        [&self.server, &self.offline].map(|own| own.iter().chain(&self.both).cloned().collect())
    }
}

/// All of them.
pub fn cases() -> Vec<Case> {
    let read: BTreeMap<String, Vec<Case>> = serde_saphyr::from_str(include_str!("bad.yaml")).unwrap();
    let of_kind = |(kind, cases): (String, Vec<Case>)| {
        cases.into_iter().map(move |case| Case { kind: kind.clone(), ..case })
    };
    let cases: Vec<_> = read.into_iter().flat_map(of_kind).collect();
    assert!(
        cases.iter().all(|case| case.words().iter().all(|words| words.len() == 2)),
        "each says two things"
    );
    cases
}
