//! What goes wrong with the API server, counted always and logged once.

use prometheus::IntCounterVec;

use super::failure::{ApiError, Failure};
use crate::observe::Metrics;

/// Counts failures by verb and kind.
#[derive(Clone)]
pub(super) struct Errors(IntCounterVec);

impl Errors {
    pub(super) fn new(metrics: &Metrics, name: &str, help: &str) -> Self {
        Self(metrics.counters(name, help, &["verb", "kind"]))
    }

    pub(super) fn count(&self, error: &ApiError) {
        self.0.with_label_values(&[error.verb.as_str(), error.failure.label()]).inc();
    }
}

/// One thing that may fail for a while: the log hears when that begins, when its kind changes, and when it ends.
pub(super) struct Trouble {
    errors: Errors,
    what: &'static str,
    /// What works, once it does.
    over: String,
    known: Option<&'static str>,
}

impl Trouble {
    pub(super) fn new(errors: Errors, what: &'static str, over: String) -> Self {
        Self { errors, what, over, known: None }
    }

    /// What fails, from now on in other words.
    pub(super) fn rename(&mut self, what: &'static str) {
        self.what = what;
    }

    /// It is not allowed, and need not be: the log hears it once, and the end of it.
    pub(super) fn unneeded(&mut self, error: &ApiError) {
        let kind = error.failure.label();
        if self.known.replace(kind) != Some(kind) {
            self.errors.count(error);
            tracing::info!(%error, "a watch that is not needed is not allowed");
        }
    }

    /// It failed, or it did not.
    pub(super) fn note(&mut self, error: Option<&ApiError>) {
        let Some(error) = error else {
            if self.known.take().is_some() {
                tracing::info!("{} now", self.over);
            }
            return;
        };
        self.errors.count(error);
        let kind = error.failure.label();
        if self.known.replace(kind) != Some(kind) {
            tracing::warn!(%error, "{}", self.what);
        }
    }

    /// It failed in a way that is routine.
    pub(super) fn routine(&self, error: &ApiError) {
        self.errors.count(error);
    }
}

impl Failure {
    /// As a metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unauthenticated(_) => "unauthenticated",
            Self::Forbidden(_) => "forbidden",
            Self::NotServed => "not_served",
            Self::NotFound => "not_found",
            Self::NoNamespace(_) => "no_namespace",
            Self::Conflict => "conflict",
            Self::Expired => "expired",
            Self::Invalid(_) => "invalid",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timed_out",
            Self::Unreachable(_) => "unreachable",
            Self::Unreadable(_) => "unreadable",
            Self::Unaskable(_) => "unaskable",
        }
    }
}
