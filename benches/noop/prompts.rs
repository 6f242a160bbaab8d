//! Bodies of a given size: chats over one of a few documents, each with a question of its own at the end.
//!
//! Invariant: the same number makes the same body.

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::json;

const WORDS: [&str; 24] = [
    "the", "a", "request", "engine", "cache", "block", "token", "prefix", "of", "and", "is", "router",
    "model", "queue", "answer", "who", "holds", "first", "waits", "until", "each", "long", "prompt",
    "server",
];

/// What bodies are made of.
pub struct Prompts {
    model: String,
    /// Each begins with its number.
    unlike: bool,
    documents: Vec<String>,
}

impl Prompts {
    /// Bodies of about that many bytes over so many documents. No documents: each body is new from its first word on.
    pub fn new(model: &str, bytes: usize, documents: usize) -> Self {
        let write = |seed: usize| {
            let mut rng = StdRng::seed_from_u64(seed as u64);
            let mut text = format!("Document {seed}.");
            // What else is in the body takes some 250 bytes.
            while text.len() + 250 < bytes {
                text.push(' ');
                text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
            }
            text
        };
        let texts = (0..documents.max(1)).map(write).collect();
        Self { model: model.to_owned(), unlike: documents == 0, documents: texts }
    }

    /// The body of that number.
    pub fn body(&self, number: usize) -> String {
        let document = &self.documents[number % self.documents.len()];
        let unlike = if self.unlike { format!("{number} ") } else { String::new() };
        let messages = json!([
            {"role": "system", "content": unlike + document},
            {"role": "user", "content": format!("Question {number:07}: what does the engine do next?")},
        ]);
        json!({"model": self.model, "messages": messages, "max_tokens": 1}).to_string()
    }
}
