//! Resources in files: read at the start and at every change, and taken over all together or not at all.
//!
//! An edit that can't be used is reported once, and what was declared before stays.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::instruments::{Change, Instruments};
use crate::{
    config::Config,
    files::{self, FromFiles},
    policy::{
        FieldPath, Notices, Problem, Resource,
        manifests::{self, Manifests, Remark, Severity},
    },
};

/// Largest file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// A resource of a file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Declared {
    pub value: Value,
    /// `file:line`
    pub place: String,
}

/// What the files declare.
pub(super) type AllDeclared = Arc<Vec<Declared>>;

/// Everything that is wrong with the files, a line each.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.iter().map(Remark::to_string).collect::<Vec<_>>().join("\n"))]
pub struct FileErrors(Vec<Remark>);

impl FileErrors {
    /// Each of them.
    pub fn remarks(&self) -> &[Remark] {
        &self.0
    }
}

/// The files, and what they are held to.
pub(super) struct Given {
    paths: Vec<PathBuf>,
    /// The worker sets that exist; `None`: more is declared elsewhere than what the configuration and the files say.
    worker_sets: Option<BTreeSet<String>>,
}

pub(super) type Texts = Vec<(String, String)>;

pub(super) struct Parsed {
    declared: Vec<Declared>,
    pub warnings: Vec<Remark>,
    pub made: Manifests,
}

impl Given {
    pub fn of(config: &Config) -> Self {
        let names = || config.workersets.iter().map(|set| set.name.clone()).collect();
        Self { paths: config.policy.files.clone(), worker_sets: (!config.watches_policies()).then(names) }
    }

    /// Names and texts of the files that are there, each once.
    pub async fn read(&self) -> Result<Texts, FileErrors> {
        let (mut paths, mut wrong) = (Vec::new(), Vec::new());
        for given in &self.paths {
            match files::matching(given) {
                Ok(found) if found.iter().any(|path| path == given && path.is_dir()) => {
                    let error = io::Error::new(
                        io::ErrorKind::IsADirectory,
                        "is a directory; name its files, as `*.yaml`",
                    );
                    wrong.push(unreadable(given, &error));
                }
                Ok(found) => paths.extend(found.into_iter().filter(|path| !path.is_dir())),
                Err(error) => wrong.push(unreadable(given, &error)),
            }
        }
        let read = paths.iter().map(async |path| (path, text(path).await));
        let mut texts: Texts = Vec::new();
        for (path, text) in join_all(read).await {
            match text {
                Ok(text) if texts.iter().all(|(known, _)| Path::new(known) != path) => {
                    texts.push((path.display().to_string(), text));
                }
                Ok(_) => {}
                Err(error) => wrong.push(unreadable(path, &error)),
            }
        }
        if wrong.is_empty() { Ok(texts) } else { Err(FileErrors(wrong)) }
    }

    pub fn parse(&self, texts: &Texts) -> Result<Parsed, FileErrors> {
        let files = texts.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        let made = manifests::read(files, self.worker_sets.as_ref());
        let counts = |remark: &&Remark| !remark.unresolved || self.worker_sets.is_some();
        let said = |severity: Severity| {
            let of = made.remarks.iter().filter(counts).filter(move |remark| remark.severity == severity);
            of.cloned().collect::<Vec<_>>()
        };
        let (wrong, mut warnings) = (said(Severity::Error), said(Severity::Warning));
        if !wrong.is_empty() {
            return Err(FileErrors(wrong));
        }
        // A pattern may well match nothing yet; an operator who mistyped it must hear of that.
        let unmatched = self.paths.first().filter(|_| texts.is_empty());
        let nothing = "matches no file, nor does any other of `policy.files`: files declare no policies";
        warnings.extend(unmatched.map(|path| Remark::of_file(path, Severity::Warning, nothing.to_owned())));
        let mut declared = Vec::new();
        for (index, resource) in made.resources.iter().enumerate() {
            match plain(resource) {
                Some(value) => declared.push(Declared { value, place: made.place(index) }),
                None => {
                    let problem = Problem::new(FieldPath::of("kind"), "has no effect in a file");
                    warnings.push(made.remark(index, &problem, Severity::Warning));
                }
            }
        }
        Ok(Parsed { declared, warnings, made })
    }
}

fn plain(resource: &Resource) -> Option<Value> {
    match resource {
        Resource::GatewayBackend(one) => Some(json!(one)),
        Resource::InferencePolicy(one) => Some(json!(one)),
        Resource::InferencePool(one) => Some(json!(one)),
        Resource::InferenceProvider(one) => Some(json!(one)),
        Resource::InferenceWorkerSet(_) => None,
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Remark {
    Remark::of_file(path, Severity::Error, format!("cannot be read: {error}"))
}

async fn text(path: &Path) -> io::Result<String> {
    let content = files::read(path, MAX_BYTES).await?;
    String::from_utf8(content).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// The files, followed.
pub struct PolicyFiles {
    given: Given,
    /// What was taken over.
    texts: Option<Texts>,
    to: watch::Sender<AllDeclared>,
    notices: Notices,
    instruments: Instruments,
}

impl PolicyFiles {
    /// The files that the configuration names, as they are now.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub(super) async fn load(
        config: &Config,
        (notices, instruments): (Notices, Instruments),
    ) -> Result<(Self, watch::Receiver<AllDeclared>), FileErrors> {
        let (to, declared) = watch::channel(AllDeclared::default());
        let mut files = Self { given: Given::of(config), texts: None, to, notices, instruments };
        files.load_once().await?;
        Ok((files, declared))
    }

    async fn load_once(&mut self) -> Result<(), FileErrors> {
        let texts = self.given.read().await?;
        if self.texts.as_ref() == Some(&texts) {
            return Ok(());
        }
        let Parsed { declared, warnings, .. } = self.given.parse(&texts)?;
        // Those of the start have been said by then.
        if self.texts.is_some() {
            warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        self.texts = Some(texts);
        self.to.send_replace(Arc::new(declared));
        Ok(())
    }
}

impl FromFiles for PolicyFiles {
    fn files(&self) -> Vec<PathBuf> {
        self.given.paths.clone()
    }

    async fn load(&mut self) -> Result<(), String> {
        let before = self.to.borrow().clone();
        self.load_once().await.map_err(|error| error.to_string())?;
        // What is new is told of when it is in force.
        if self.notices.refused().is_some() && *self.to.borrow() == before {
            tracing::info!("the policy files are valid again, and say what is in force");
        }
        self.notices.taken_over();
        Ok(())
    }

    fn refused(&self, why: &str) {
        self.instruments.count(Change::Refused);
        self.notices.refuse(why);
        tracing::error!(error = why, "the policy files can't be used: what was in force stays");
    }
}
