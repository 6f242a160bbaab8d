//! Token counts and the response's id out of an answer's JSON, in the forms of all APIs that we parse.
//!
//! OpenAI: `usage` at the top, null in most stream chunks. Responses: under `response` in stream events.
//! Anthropic: under `message` in `message_start`, at the top of `message_delta`; counts add up over both.

use serde::Deserialize;

use super::tail::Tail;
use crate::types::Usage;

/// What was read so far; later counts replace earlier ones of the same name.
#[derive(Debug, Default)]
pub struct Found {
    prompt: Option<u64>,
    completion: Option<u64>,
    cached: Option<u64>,
    id: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Envelope {
    id: Option<serde_json::Value>,
    usage: Option<Counts>,
    message: Option<Inner>,
    response: Option<Inner>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Inner {
    id: Option<serde_json::Value>,
    usage: Option<Counts>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Found {
    /// Reads one JSON object: a whole answer, or the data of one event. What does not parse is passed over.
    pub fn read(&mut self, json: &Tail) {
        if json.is_cut() {
            return self.counts(last_usage(json.bytes()).unwrap_or_default());
        }
        let Ok(envelope) = serde_json::from_slice::<Envelope>(json.bytes()) else { return };
        let Inner { id, usage } = envelope.response.unwrap_or_default();
        if self.id.is_none() {
            self.id = id.or(envelope.id).and_then(|id| id.as_str().map(str::to_owned));
        }
        for counts in
            [envelope.message.unwrap_or_default().usage, usage, envelope.usage].into_iter().flatten()
        {
            self.counts(counts);
        }
    }

    /// The counts, if the answer told any.
    pub fn usage(&self) -> Option<Usage> {
        (self.prompt.is_some() || self.completion.is_some()).then(|| Usage {
            prompt_tokens: self.prompt.unwrap_or_default(),
            completion_tokens: self.completion.unwrap_or_default(),
            cached_tokens: self.cached,
        })
    }

    /// The id of the answer.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    fn counts(&mut self, counts: Counts) {
        let details = counts.prompt_tokens_details.or(counts.input_tokens_details).unwrap_or_default();
        self.prompt = counts.prompt_tokens.or(counts.input_tokens).or(self.prompt);
        self.completion = counts.completion_tokens.or(counts.output_tokens).or(self.completion);
        self.cached = details.cached_tokens.or(counts.cache_read_input_tokens).or(self.cached);
    }
}

/// The last `usage` object in the end of a JSON text. Inside a string its quotes would be escaped.
fn last_usage(end: &[u8]) -> Option<Counts> {
    const KEY: &[u8] = b"\"usage\":";
    (0..end.len().saturating_sub(KEY.len()))
        .rev()
        .filter(|at| end[*at..].starts_with(KEY))
        .find_map(|at| serde_json::Deserializer::from_slice(&end[at + KEY.len()..]).into_iter().next()?.ok())
}
