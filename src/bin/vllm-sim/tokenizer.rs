//! Text to tokens and back, through the library that routers can use too: ids are those of the real engine.
//!
//! Owner of the vocabulary that answers are made of: single-token words that survive being joined, sent back as the next
//! turn's history and tokenized again, so that a conversation hits its own decoded blocks.

use std::{collections::HashMap, path::Path, sync::Arc};

use anyhow::{Context, Result};
use llm_tokenizer::{
    CacheConfig, CachedTokenizer,
    chat_template::{ChatTemplateContentFormat, ChatTemplateParams},
    factory::create_tokenizer_with_chat_template,
    traits::{Decoder as _, Encoder as _, Tokenizer as _},
};
use serde_json::Value;

/// Words that answers are made of, at most.
const WORDS: usize = 256;

/// A chat to be rendered through the model's template.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    /// OpenAI messages.
    pub messages: Vec<Value>,
    /// OpenAI tools.
    pub tools: Option<Vec<Value>>,
    /// `chat_template_kwargs`
    pub kwargs: HashMap<String, Value>,
    /// Ends the prompt with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// Leaves the last message open.
    pub continue_final_message: bool,
}

/// The model's tokenizer.
pub struct Tokenizer {
    inner: CachedTokenizer,
    words: Vec<(u32, String)>,
}

impl Tokenizer {
    /// Loads `tokenizer.json` and the chat template of a directory.
    ///
    /// # Errors
    /// If the directory holds no tokenizer that can be read.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = dir.to_str().context("the model directory's name is not UTF-8")?;
        let plain = create_tokenizer_with_chat_template(path, None)?;
        let config = CacheConfig { enable_l1: true, ..CacheConfig::default() };
        let inner = CachedTokenizer::new(Arc::clone(&plain), config);
        let words = words(&inner);
        anyhow::ensure!(!words.is_empty(), "the vocabulary of {path} has no token that decodes to text");
        Ok(Self { inner, words })
    }

    /// Ids of plain text.
    ///
    /// # Errors
    /// If the tokenizer refuses the text.
    pub fn encode(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        Ok(self.inner.encode(text, special)?.token_ids().to_vec())
    }

    /// Ids of a chat.
    ///
    /// # Errors
    /// If the template refuses the chat.
    pub fn encode_chat(&self, chat: &Chat) -> Result<Vec<u32>> {
        let params = ChatTemplateParams {
            add_generation_prompt: chat.add_generation_prompt,
            tools: chat.tools.as_deref(),
            template_kwargs: Some(&chat.kwargs),
            special_tokens: Some(self.inner.get_special_tokens()),
            continue_final_message: chat.continue_final_message,
            ..ChatTemplateParams::default()
        };
        let flat = matches!(self.inner.chat_template_content_format(), ChatTemplateContentFormat::String);
        let messages: Vec<_> =
            chat.messages.iter().cloned().map(|m| if flat { flatten(m) } else { m }).collect();
        let text = self.inner.apply_chat_template_with_encoding(&messages, params, None)?.text;
        self.encode(&text, false)
    }

    /// Text of ids.
    ///
    /// # Errors
    /// If an id is unknown.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        self.inner.decode(ids, false)
    }

    /// The token as the vocabulary spells it.
    pub fn spelling(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// Ids that answers may be made of.
    pub fn answer_ids(&self) -> Vec<u32> {
        self.words.iter().map(|(id, _)| *id).collect()
    }

    /// Text of one answer token.
    pub fn word(&self, id: u32) -> &str {
        self.words.binary_search_by_key(&id, |(id, _)| *id).map_or("", |at| &self.words[at].1)
    }
}

/// A message whose text parts are joined, for templates that expect a string.
fn flatten(mut message: Value) -> Value {
    if let Some(parts) = message.get("content").and_then(Value::as_array) {
        let texts: Vec<_> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
        message["content"] = texts.join("\n").into();
    }
    message
}

/// Tokens that decode to a space and a lower-case word, and encode to themselves; whatever decodes, if there are none.
fn words(tokenizer: &CachedTokenizer) -> Vec<(u32, String)> {
    let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let decoded = |id: u32| Some((id, tokenizer.decode(&[id], false).ok()?));
    let is_word = |text: &str| {
        text.strip_prefix(' ').is_some_and(|w| w.len() > 2 && w.bytes().all(|b| b.is_ascii_lowercase()))
    };
    let survives =
        |(id, text): &(u32, String)| tokenizer.encode(text, false).is_ok_and(|e| e.token_ids() == [*id]);
    let found: Vec<_> = ids
        .clone()
        .filter_map(decoded)
        .filter(|(_, text)| is_word(text))
        .filter(survives)
        .take(WORDS)
        .collect();
    if !found.is_empty() {
        return found;
    }
    ids.filter_map(decoded).filter(|(_, text)| !text.is_empty()).take(WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokenizer() -> Tokenizer {
        Tokenizer::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizer")).unwrap()
    }

    #[test]
    fn answers_survive_being_tokenized_again() {
        let tokenizer = tokenizer();
        let ids = tokenizer.answer_ids();
        assert!(ids.len() > 50, "{} words", ids.len());
        let text: String = ids.iter().map(|&id| tokenizer.word(id)).collect();
        assert_eq!(tokenizer.encode(&text, false).unwrap(), ids);
    }
}
