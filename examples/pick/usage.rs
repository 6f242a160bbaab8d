//! Finds the token counts in an answer: in one JSON, or in the events of a stream, cut anywhere.

use kinference::serve::proto::Usage;
use serde_json::Value;

/// Reads an answer as it passes.
pub struct UsageReader {
    streamed: bool,
    /// The whole answer, or of a stream the line that is not over yet.
    kept: Vec<u8>,
    found: Option<Usage>,
}

impl UsageReader {
    pub fn new(streamed: bool) -> Self {
        Self { streamed, kept: Vec::new(), found: None }
    }

    pub fn feed(&mut self, chunk: &[u8]) {
        self.kept.extend_from_slice(chunk);
        while self.streamed
            && let Some(end) = self.kept.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = self.kept.drain(..=end).collect();
            self.found = line.strip_prefix(b"data:").and_then(read).or(self.found);
        }
    }

    pub fn found(self) -> Option<Usage> {
        if self.streamed { self.found } else { read(&self.kept) }
    }
}

fn read(json: &[u8]) -> Option<Usage> {
    let answer: Value = serde_json::from_slice(json).ok()?;
    let usage = answer.get("usage")?;
    Some(Usage {
        prompt_tokens: usage["prompt_tokens"].as_u64()?,
        completion_tokens: usage["completion_tokens"].as_u64()?,
        cached_tokens: usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
    })
}
