//! What a test's thread logs, as it is written.

use std::{io, sync::Arc};

use kinference::observe::LogFilter;
use parking_lot::Mutex;
use tracing::subscriber::{DefaultGuard, set_default};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt};

/// Lines: level, module, words, fields.
#[derive(Clone, Default)]
pub struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// From now on, until the guard is dropped.
    pub fn capture(filter: &str) -> (Self, LogFilter, DefaultGuard) {
        let (layer, log) = LogFilter::new(EnvFilter::new(filter));
        let written = Self::default();
        let writer = written.clone();
        let shown = fmt::layer().with_writer(move || writer.clone()).with_ansi(false).without_time();
        let guard = set_default(tracing_subscriber::registry().with(layer).with(shown));
        (written, log, guard)
    }

    /// What was written since the last call.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock())).unwrap()
    }

    /// The lines with those words that were written since the last call; there is nothing else of that worker.
    #[track_caller]
    pub fn only(&self, worker: &str, words: &str) {
        let all = self.take();
        let of_worker: Vec<_> = all
            .lines()
            .filter(|line| {
                line.contains(&format!("worker={worker}")) || line.contains(&format!("worker=\"{worker}\""))
            })
            .collect();
        assert!(of_worker.len() == 1 && of_worker[0].contains(words), "{words}:\n{all}");
    }
}
