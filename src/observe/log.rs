//! What is logged, which can be changed while the process runs.
//!
//! Invariant: a filter that does not do changes nothing. Text as the variable `RUST_LOG` has it.

use std::borrow::Cow;

use tracing::{Level, Metadata, level_filters::LevelFilter};
use tracing_subscriber::{EnvFilter, Registry, filter::ParseError, reload};

/// What is logged without `RUST_LOG`. That a connection was lost we say ourselves, with the worker's name; and the
/// Kubernetes client logs each call that fails as an error, where whoever called knows better how bad it is.
pub const DEFAULT_LOG: &str = "info,zeromq=warn,kube_client=off";

/// The filter of the log, in force and changeable. Cheap to clone.
#[derive(Clone)]
pub struct LogFilter(reload::Handle<EnvFilter, Registry>);

/// Why a filter does not do.
#[derive(Debug, thiserror::Error)]
pub enum LogFilterError {
    /// A part of it that would silence everything else, or is a slip.
    #[error("`{0}` is neither a level (off, error, warn, info, debug, trace) nor `target=level`")]
    Directive(String),
    /// It is written wrong.
    #[error("`{0}`: {1}")]
    Grammar(String, ParseError),
    /// Nothing is logged any more.
    #[error("the log is gone: {0}")]
    Gone(#[from] reload::Error),
}

impl LogFilter {
    /// With that filter to begin with; the layer goes to the subscriber.
    pub fn new(filter: EnvFilter) -> (reload::Layer<EnvFilter, Registry>, Self) {
        let (layer, handle) = reload::Layer::new(filter);
        (layer, Self(handle))
    }

    /// What is in force. Its parts may stand in another order than they were given in.
    ///
    /// # Errors
    /// [`LogFilterError::Gone`]
    pub fn now(&self) -> Result<String, LogFilterError> {
        Ok(self.0.with_current(ToString::to_string)?)
    }

    /// Puts another one in force, and logs that. A level alone is one for our own lines: of others is logged what is by
    /// default.
    ///
    /// # Errors
    /// It does not do; the old one stays.
    pub fn set(&self, text: &str) -> Result<(), LogFilterError> {
        let text = whole(text);
        let filter = parse(&text)?;
        let tell = || tracing::info!(filter = %text, "what is logged was changed");
        // Either filter may hide the line: it is told under the one that shows it.
        let shown = tracing::enabled!(Level::INFO);
        if shown {
            tell();
        }
        self.0.reload(filter)?;
        if !shown {
            tell();
        }
        Ok(())
    }
}

/// Whatever the filter says, not what the watcher of files says of each change: where the log is a file beside one that is
/// watched, each line would make the next. Nor what tokenizers say of each character: no prompt is ever logged.
pub fn may_be_logged(about: &Metadata<'_>) -> bool {
    let of = |name: &str| about.target().starts_with(name);
    !of("notify::") && (*about.level() <= Level::INFO || !(of("tokenizers") || of("llm_tokenizer")))
}

fn whole(text: &str) -> Cow<'_, str> {
    match level(text) {
        Some(level) => format!("{DEFAULT_LOG},{}={level}", env!("CARGO_CRATE_NAME")).into(),
        None => text.into(),
    }
}

fn level(text: &str) -> Option<LevelFilter> {
    // To the parser of levels nothing is one.
    text.parse().ok().filter(|_| !text.is_empty())
}

/// Stricter than `RUST_LOG`, where what is no level is the name of a target, and silences all others.
fn parse(text: &str) -> Result<EnvFilter, LogFilterError> {
    // What is said of spans is left to the parser.
    let parts = text.split(',').filter(|part| !part.contains('['));
    let mut slips = parts.filter(|part| match part.split_once('=') {
        Some((target, of)) => {
            target.is_empty() || target.contains(char::is_whitespace) || level(of).is_none()
        }
        None => level(part).is_none(),
    });
    if let Some(slip) = slips.next() {
        return Err(LogFilterError::Directive(slip.into()));
    }
    EnvFilter::try_new(text).map_err(|why| LogFilterError::Grammar(text.into(), why))
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn neither_echoes_nor_prompts_are_logged_whatever_the_filter_is() {
        let seen = std::sync::Arc::new(parking_lot::Mutex::new(Vec::new()));
        let noted = seen.clone();
        let note = tracing_subscriber::filter::filter_fn(move |about| {
            noted.lock().push((about.target().to_owned(), may_be_logged(about)));
            true
        });
        let all = tracing_subscriber::registry().with(note);
        tracing::subscriber::with_default(all, || {
            tracing::trace!(target: "notify::inotify", "an event");
            tracing::debug!(target: "tokenizers::models", "a character");
            tracing::warn!(target: "tokenizers::models", "a fault");
            tracing::trace!(target: "kinference::ingest", "anything");
        });
        let of: Vec<_> = seen.lock().iter().map(|(_, may)| *may).collect();
        assert_eq!(of, [false, false, true, true]);
    }

    #[test]
    fn a_level_alone_is_for_our_own_lines() {
        assert_eq!(whole("DEBUG"), format!("{DEFAULT_LOG},kinference=debug"));
        assert_eq!(whole("off"), format!("{DEFAULT_LOG},kinference=off"));
        for as_it_is in ["warn,kube_client=info", "kinference=debug", "", "verbose"] {
            assert_eq!(whole(as_it_is), as_it_is);
        }
        assert!(parse(&whole("trace")).is_ok());
    }

    #[test]
    fn slips_are_told_apart_from_filters() {
        for good in [
            "info",
            "OFF",
            "info,kinference=debug",
            "warn,kinference::ingest=trace",
            "info,kinference[span{a=1}]=debug",
        ] {
            assert!(parse(good).is_ok(), "{good}: {:?}", parse(good).err());
        }
        for bad in [
            "",
            "verbose",
            "info,",
            "kinference",
            "kinference=loud",
            "=info",
            "info,kinference=",
            "info, kube=off",
            "a[b",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let told = parse("info,verbose").unwrap_err().to_string();
        assert_eq!(
            told,
            "`verbose` is neither a level (off, error, warn, info, debug, trace) nor `target=level`"
        );
    }
}
