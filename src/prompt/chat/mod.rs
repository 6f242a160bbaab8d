//! Conversations: whatever API they come by, as the chat completion that the engine makes of them.
//!
//! The engine turns responses and Anthropic messages into chat messages before it applies the template;
//! the same is done here, step by step, because one different byte changes every token after it.

mod anthropic;
mod engine_view;
mod responses;

use serde_json::{Map, Value};

pub(super) use engine_view::{EngineView, engine_view};

use super::{
    fields::{Fields, outline},
    request::ParsedRequest,
};
use crate::types::Api;

/// Larger trees are not built: they are no conversation, and cost many times their text.
const MAX_VALUES: usize = 500_000;

/// A conversation in the shape of a chat completion, its contents as the client sent them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Conversation {
    /// Chat messages.
    pub(super) messages: Vec<Value>,
    /// Tools, in the shape of chat completions. To a template none and an empty list may differ.
    pub(super) tools: Option<Vec<Value>>,
    /// Documents for the template.
    pub(super) documents: Option<Vec<Value>>,
    /// Further variables of the template.
    pub(super) kwargs: Map<String, Value>,
    /// Whether the template opens the assistant's turn.
    pub(super) add_generation_prompt: bool,
    /// Whether the last message is left open.
    pub(super) continue_final_message: bool,
    /// Whether the tokenizer adds its own special tokens.
    pub(super) add_special_tokens: bool,
}

/// Why a conversation can't be read, in words for a log.
pub(super) type Unreadable = String;

/// Reads the conversation of a request.
///
/// # Errors
/// When the engine would not read it either, or reads it in a way that is not known here.
pub(super) fn conversation(request: &ParsedRequest) -> Result<Conversation, Unreadable> {
    let fields = Fields::read(&request.body).map_err(|rejection| rejection.message)?;
    let text = std::str::from_utf8(&request.body).map_err(|error| error.to_string())?;
    if outline(text).values > MAX_VALUES {
        return Err(format!("more than {MAX_VALUES} JSON values"));
    }
    if fields.get("chat_template").is_some() {
        return Err("the request brings its own chat template".to_owned());
    }
    let mut conversation = match request.api {
        Api::ChatCompletions => chat(&fields)?,
        Api::Responses => responses::conversation(&fields)?,
        Api::Messages => anthropic::conversation(&fields)?,
        Api::Completions => return Err("a completion is no conversation".to_owned()),
    };
    if conversation.messages.iter().any(|message| !message.is_object()) {
        return Err("a message is not an object".to_owned());
    }
    // These have parameters of their own, which win.
    for own in ["add_generation_prompt", "continue_final_message", "messages", "tools"] {
        conversation.kwargs.shift_remove(own);
    }
    Ok(conversation)
}

fn chat(fields: &Fields<'_>) -> Result<Conversation, Unreadable> {
    let mut kwargs: Map<String, Value> = field(fields, "chat_template_kwargs")?.unwrap_or_default();
    if let Some(effort) = field::<Value>(fields, "reasoning_effort")? {
        set_effort(&mut kwargs, effort);
    }
    let documents = field(fields, "documents")?;
    if documents.is_some() {
        kwargs.shift_remove("documents");
    }
    Ok(Conversation {
        messages: field(fields, "messages")?.unwrap_or_default(),
        tools: field(fields, "tools")?,
        documents,
        kwargs,
        add_generation_prompt: fields.flag("add_generation_prompt").unwrap_or(true),
        continue_final_message: fields.flag("continue_final_message").unwrap_or(false),
        add_special_tokens: fields.flag("add_special_tokens").unwrap_or(false),
    })
}

/// A reasoning effort also switches thinking on or off, unless the client did that itself.
fn set_effort(kwargs: &mut Map<String, Value>, effort: Value) {
    if !kwargs.contains_key("enable_thinking") {
        kwargs.insert("enable_thinking".to_owned(), Value::Bool(effort != "none"));
    }
    kwargs.insert("reasoning_effort".to_owned(), effort);
}

/// A field of that type; an error when it is there and something else.
fn field<T: serde::de::DeserializeOwned>(fields: &Fields<'_>, name: &str) -> Result<Option<T>, Unreadable> {
    let parse = |raw: &serde_json::value::RawValue| serde_json::from_str(raw.get());
    fields.get(name).map(parse).transpose().map_err(|error| format!("`{name}`: {error}"))
}

/// A string inside a value; empty when it is not there.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
