//! The live line on stderr: how many were sent, answered, failed, and the median so far.
//! On a terminal one line rewrites itself; elsewhere a line comes every few seconds.

use std::{
    io::{IsTerminal, Write, stderr},
    time::Duration,
};

use parking_lot::Mutex;

use crate::report::{Record, quantile};

#[derive(Default)]
struct Counts {
    sent: usize,
    failed: usize,
    ttft_ms: Vec<f64>,
}

/// Counts of a run, and their display.
pub struct Progress {
    label: String,
    total: usize,
    counts: Mutex<Counts>,
}

impl Progress {
    /// Of a run of `total` requests.
    pub fn new(label: String, total: usize) -> Self {
        Self { label, total, counts: Mutex::default() }
    }

    /// A request went out.
    pub fn sent(&self) {
        self.counts.lock().sent += 1;
    }

    /// It was answered, or failed.
    pub fn done(&self, record: &Record) {
        let mut counts = self.counts.lock();
        match record.error {
            Some(_) => counts.failed += 1,
            None => counts.ttft_ms.push(record.ttft_ms),
        }
    }

    fn line(&self) -> String {
        let counts = self.counts.lock();
        let (sent, answered) = (counts.sent, counts.ttft_ms.len());
        let failed = if counts.failed > 0 { format!(", {} FAILED", counts.failed) } else { String::new() };
        let median = quantile(&counts.ttft_ms, 0.5);
        format!(
            "{:<26} {answered:>4} answered of {sent:>4} sent of {:<4} median TTFT {median:>7.0} ms{failed}",
            self.label, self.total
        )
    }

    /// Shows the line until the work is done, and once more then.
    pub async fn show_until<T>(&self, work: impl Future<Output = T>) -> T {
        let terminal = stderr().is_terminal();
        let mut tick = tokio::time::interval(Duration::from_millis(if terminal { 250 } else { 5000 }));
        tick.tick().await; // the first is immediate
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                out = &mut work => {
                    self.write(if terminal { "\r" } else { "" }, "\n");
                    return out;
                }
                _ = tick.tick() => {
                    if terminal { self.write("\r", "") } else { self.write("", "\n") }
                }
            }
        }
    }

    /// A display that can't be written to is no reason to stop measuring.
    fn write(&self, before: &str, after: &str) {
        let mut out = stderr().lock();
        let _ = write!(out, "{before}{}{after}", self.line());
        let _ = out.flush();
    }
}
