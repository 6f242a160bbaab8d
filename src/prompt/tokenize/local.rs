//! A model's tokenizer in this process: its chat template, and an encoder that remembers prefixes.
//!
//! The prefix cache splits only after special tokens, where the encoding of a text is the encoding of its
//! halves, so a conversation that grows costs its new turn. Both caches are bounded in bytes, per model.

mod marks;

use std::{path::Path, sync::Arc};

use llm_tokenizer::{
    CacheConfig, CachedTokenizer, TokenizerTrait,
    chat_template::ChatTemplateParams,
    factory::create_tokenizer_with_chat_template,
    traits::{Encoder, PromptEncoding},
};
use serde_json::json;

use super::{TokenizeError, longest};
use crate::{
    prompt::{
        chat::{Conversation, EngineView, conversation, engine_view},
        request::{ParsedRequest, Prompts, Truncation},
    },
    types::PromptTokens,
};
use marks::Marks;

/// Whole prompts remembered, in bytes.
const WHOLE_BYTES: usize = 16 << 20;
/// Whole prompts remembered.
const WHOLE_ENTRIES: usize = 1024;
/// Prefixes remembered, in bytes.
const PREFIX_BYTES: usize = 64 << 20;

/// A model's tokenizer and chat template.
pub struct LocalModel {
    tokenizer: CachedTokenizer,
    marks: Marks,
}

impl LocalModel {
    /// Loads `tokenizer.json` and the chat template from a directory. Takes a while: not for async threads.
    ///
    /// # Errors
    /// Why it does not load, for a log.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let path = dir.to_str().ok_or("the path is not UTF-8")?;
        if !dir.is_dir() {
            return Err(format!("{path} is no directory"));
        }
        let inner = create_tokenizer_with_chat_template(path, None).map_err(|error| format!("{error:#}"))?;
        Ok(Self::caching(inner, PREFIX_BYTES))
    }

    fn caching(inner: Arc<dyn TokenizerTrait>, l1_max_memory: usize) -> Self {
        let config = CacheConfig {
            enable_l0: true,
            l0_max_entries: WHOLE_ENTRIES,
            l0_max_memory: WHOLE_BYTES,
            enable_l1: true,
            l1_max_memory,
        };
        let marks = Marks::of(inner.get_special_tokens());
        Self { tokenizer: CachedTokenizer::new(inner, config), marks }
    }

    /// The tokens of a request, of several prompts those of the longest. Blocks for as long as it takes.
    ///
    /// # Errors
    /// [`TokenizeError::Unsupported`].
    pub fn tokenize(&self, request: &ParsedRequest) -> Result<PromptTokens, TokenizeError> {
        let mut tokens = match &request.prompts {
            Prompts::Conversation => self.conversation(request)?,
            Prompts::TokenIds(lists) => of(longest(lists.iter().cloned()))?,
            Prompts::Texts(texts) => {
                let encode = |text: &String| self.encode(text, request.add_special_tokens.unwrap_or(true));
                let lists = texts.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
                of(longest(lists.into_iter()))?
            }
        };
        cut(request, &mut tokens);
        Ok(tokens)
    }

    fn conversation(&self, request: &ParsedRequest) -> Result<PromptTokens, TokenizeError> {
        let conversation = conversation(request).map_err(TokenizeError::Unsupported)?;
        let format = self.tokenizer.chat_template_content_format();
        let mut view = engine_view(&conversation, format).map_err(TokenizeError::Unsupported)?;
        let ids = self.render(&conversation, &view)?;
        let credit_until = match view.first_media {
            Some(message) => Some(self.before(message, &conversation, &mut view)?),
            None => None,
        };
        Ok(PromptTokens { ids, credit_until, ..PromptTokens::default() })
    }

    /// Tokens that are surely in front of a message's content: those that two other contents have in common,
    /// but for the last, which might have merged with what follows.
    fn before(
        &self,
        message: usize,
        conversation: &Conversation,
        view: &mut EngineView,
    ) -> Result<usize, TokenizeError> {
        let mut with = |text: &str| {
            let content = &mut view.messages[message]["content"];
            *content = if content.is_array() { json!([{"type": "text", "text": text}]) } else { json!(text) };
            self.render(conversation, view)
        };
        let (one, other) = (with("\u{1}")?, with("\u{2}")?);
        let common = one.iter().zip(&*other).take_while(|(a, b)| a == b).count();
        Ok(common.saturating_sub(1))
    }

    fn render(&self, conversation: &Conversation, view: &EngineView) -> Result<Arc<[u32]>, TokenizeError> {
        let params = ChatTemplateParams {
            add_generation_prompt: conversation.add_generation_prompt,
            continue_final_message: conversation.continue_final_message,
            tools: view.tools.as_deref(),
            documents: conversation.documents.as_deref(),
            template_kwargs: Some(&view.kwargs),
            ..ChatTemplateParams::default()
        };
        let output = self.tokenizer.apply_chat_template_with_encoding(&view.messages, params, None);
        let output = output.map_err(|error| TokenizeError::Unsupported(format!("{error:#}")))?;
        match output.encoding {
            PromptEncoding::FromText => self.encode(&output.text, conversation.add_special_tokens),
            PromptEncoding::Deferred(job) => match job.run() {
                Ok(encoding) => Ok(encoding.token_ids().into()),
                Err(error) => Err(TokenizeError::Unsupported(format!("{error:#}"))),
            },
        }
    }

    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Arc<[u32]>, TokenizeError> {
        if let Some(end) = self.marks.after_first_long(text) {
            // The cache keeps the deepest mark of a text that it knows the beginning of, and every conversation begins
            // with the same few bytes: of one with a long system prompt, only that conversation's next turn would hit.
            // Asked for by itself, the system prompt is kept for every other conversation that has it.
            let _kept = self.tokenizer.encode(&text[..end], add_special_tokens);
        }
        match self.tokenizer.encode(text, add_special_tokens) {
            Ok(encoding) => Ok(encoding.token_ids().into()),
            Err(error) => Err(TokenizeError::Unsupported(format!("{error:#}"))),
        }
    }
}

/// No prompt at all: embeddings stand in for it.
fn of(ids: Option<Arc<[u32]>>) -> Result<PromptTokens, TokenizeError> {
    let ids = ids.ok_or_else(|| TokenizeError::Unsupported("there is no text".to_owned()))?;
    Ok(PromptTokens { ids, ..PromptTokens::default() })
}

/// Cuts the prompt where its client asks for that.
pub(super) fn cut(request: &ParsedRequest, tokens: &mut PromptTokens) {
    let Some(Truncation { keep, beginning }) = request.truncation else { return };
    let drop = tokens.ids.len().saturating_sub(keep);
    if drop > 0 {
        let kept = if beginning { 0..keep } else { drop..tokens.ids.len() };
        let until = |until: usize| if beginning { until.min(keep) } else { until.saturating_sub(drop) };
        tokens.ids = tokens.ids[kept].into();
        tokens.credit_until = tokens.credit_until.map(until);
    }
}

#[cfg(test)]
mod tests;
