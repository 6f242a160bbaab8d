//! The thread that writes the decision log.
//!
//! A thread of its own rather than one of the runtime's: a pipe that nobody reads must not keep the process from ending.

use std::{convert::Infallible, io, mem, sync::Arc, thread, time::Duration};

use tokio::sync::oneshot;

use crate::types::Record;

use super::{
    super::{
        queue::{Message, Waiting},
        shown::Shown,
    },
    Fate, LogMetrics, LogTarget,
    file::Sink,
};

/// Messages that are taken at once.
const AT_ONCE: usize = 256;
/// How long lines gather before they are written: to be woken, and to write, for each of them would cost more than to make it.
const GATHER: Duration = Duration::from_millis(20);
/// Bytes that are written at once, give or take a line.
const CHUNK: usize = 64 * 1024;

/// What writes the log.
pub struct LogWriter {
    sink: Sink,
    waiting: Waiting<Arc<Record>>,
    metrics: LogMetrics,
    /// The target took what was last given to it.
    takes: bool,
}

/// Nothing writes the log any more.
#[derive(Debug, thiserror::Error)]
pub enum LogStopped {
    /// The system gives us no thread.
    #[error("no thread for the decision log")]
    NoThread(#[from] io::Error),
    /// The thread is gone.
    #[error("the thread of the decision log ended")]
    Ended,
}

impl LogWriter {
    pub(super) fn new(target: LogTarget, waiting: Waiting<Arc<Record>>, metrics: LogMetrics) -> Self {
        Self { sink: Sink::new(target), waiting, metrics, takes: true }
    }

    /// Writes for ever.
    ///
    /// # Errors
    /// There is no thread for it, or it ended.
    pub async fn run(self) -> Result<Infallible, LogStopped> {
        let (alive, ended) = oneshot::channel::<Infallible>();
        thread::Builder::new().name("decision log".into()).spawn(move || {
            self.work();
            drop(alive);
        })?;
        match ended.await {
            Ok(never) => match never {},
            Err(_) => Err(LogStopped::Ended),
        }
    }

    /// Until there is nobody any more who could decide.
    fn work(mut self) {
        let (mut messages, mut lines) = (Vec::with_capacity(AT_ONCE), Lines::default());
        // What is wrong with the target is told at the start, not at the first decision.
        let opened = self.sink.write(&[]);
        self.heard(opened);
        while self.waiting.blocking_recv_many(&mut messages, AT_ONCE) > 0 {
            for message in messages.drain(..) {
                match message {
                    Message::Item(record, _room) => {
                        lines.push(&record);
                        if lines.text.len() >= CHUNK {
                            self.write(&mut lines);
                        }
                    }
                    Message::Flush(done) => {
                        self.write(&mut lines);
                        // Who asked may have given up.
                        let _ = done.send(());
                    }
                }
            }
            self.write(&mut lines);
            if self.waiting.is_empty() {
                thread::sleep(GATHER);
            }
        }
    }

    fn write(&mut self, lines: &mut Lines) {
        let Lines { text, count } = mem::take(lines);
        if count == 0 {
            return;
        }
        let wrote = self.sink.write(&text);
        self.metrics.count(if wrote.is_ok() { Fate::Written } else { Fate::Failed }, count);
        self.heard(wrote);
    }

    /// Logs what changes.
    fn heard(&mut self, wrote: io::Result<()>) {
        let took = mem::replace(&mut self.takes, wrote.is_ok());
        match (wrote, took) {
            (Ok(()), false) => tracing::info!("the decision log is written again"),
            (Err(error), true) => {
                tracing::warn!(%error, "the decision log can't be written: its lines are lost until it can");
            }
            _ => {}
        }
    }
}

/// Lines to be written.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    count: u64,
}

impl Lines {
    fn push(&mut self, record: &Record) {
        let begin = self.text.len();
        match serde_json::to_writer(&mut self.text, &Shown::from(record)) {
            Ok(()) => {
                self.text.push(b'\n');
                self.count += 1;
            }
            // Maps with string keys and numbers: there is nothing that could not be written.
            Err(error) => {
                self.text.truncate(begin);
                tracing::error!(%error, "a decision does not encode");
            }
        }
    }
}
