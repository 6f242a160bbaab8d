//! What is logged: by default, and once it is changed while the process runs.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::{io, sync::Arc};

use kinference::{app::DEFAULT_LOG, observe::LogFilter};
use parking_lot::Mutex;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt};

#[test]
fn the_default_filter_is_the_same_everywhere() {
    assert!(include_str!("../docs/configuration.md").contains(&format!("`{DEFAULT_LOG}`")));
    assert!(include_str!("../charts/kinference/values.yaml").contains(&format!("filter: {DEFAULT_LOG}\n")));
}

/// Lines as they are written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// What this thread logs from now on, level and words.
    fn capture(filter: &str) -> (Self, LogFilter, DefaultGuard) {
        let (layer, log) = LogFilter::new(EnvFilter::new(filter));
        let written = Self::default();
        let writer = written.clone();
        let shown = fmt::layer().with_writer(move || writer.clone()).with_ansi(false).without_time();
        let guard = set_default(tracing_subscriber::registry().with(layer).with(shown));
        (written, log, guard)
    }

    /// What was written since the last call.
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap()
    }
}

#[test]
fn a_changed_filter_is_in_force_at_once_and_told_of() {
    let (lines, log, _guard) = Lines::capture("info");
    let say = || {
        tracing::debug!("a detail");
        tracing::warn!("a warning");
    };
    say();
    assert!(!lines.take().contains("a detail"));
    for (filter, detail, warning) in [
        ("debug", true, true),
        ("error", false, false),
        ("warn", false, true),
        ("info,logging=trace", true, true),
    ] {
        log.set(filter).unwrap();
        let told = lines.take();
        // From one that hides the line to another such, nobody hears of it.
        assert_eq!(
            told.matches("what is logged was changed").count(),
            usize::from(filter != "warn"),
            "{filter}: {told}"
        );
        say();
        let said = lines.take();
        assert_eq!(
            (said.contains("a detail"), said.contains("a warning")),
            (detail, warning),
            "{filter}: {said}"
        );
    }
    let before = log.now().unwrap();
    assert!(log.set("info,verbose").is_err());
    say();
    assert!(lines.take().contains("a detail"));
    assert_eq!(log.now().unwrap(), before);
}
