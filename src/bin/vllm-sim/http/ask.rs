//! Request bodies of the four APIs, read into one `Ask`: what to tokenize, and how to answer.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::error::ApiError;
use crate::tokenizer::{Chat, Tokenizer};

/// The APIs that generate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
}

/// Tokens generated when a request does not say.
pub const DEFAULT_MAX_TOKENS: u32 = 16;

/// What a request wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// One a choice; only completions may have several.
    pub prompts: Vec<Vec<u32>>,
    /// Tokens to generate, if the request says.
    pub max_tokens: Option<u32>,
    /// SSE instead of one answer.
    pub stream: bool,
    /// A last chunk with the usage.
    pub include_usage: bool,
    /// Salts the prefix cache.
    pub cache_salt: Option<Arc<str>>,
}

impl Ask {
    /// Reads a body. Tokenizes, so it belongs off the async threads.
    ///
    /// # Errors
    /// As vLLM answers bodies that it does not accept.
    pub fn read(api: Api, body: &Map<String, Value>, tokenizer: &Tokenizer) -> Result<Self, ApiError> {
        let prompts = match api {
            Api::Chat => vec![encode(tokenizer, &chat(body)?)?],
            Api::Completions => completion_prompts(body, tokenizer)?,
            Api::Responses => vec![encode(tokenizer, &responses(body)?)?],
            Api::Messages => vec![encode(tokenizer, &anthropic(body)?)?],
        };
        if prompts.iter().any(Vec::is_empty) {
            return Err(ApiError::invalid("The prompt is empty.", Some("prompt")));
        }
        let number = |key: &str| body.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        Ok(Self {
            prompts,
            max_tokens: ["max_completion_tokens", "max_tokens", "max_output_tokens"]
                .into_iter()
                .find_map(number),
            stream: flag(body, "stream", false),
            include_usage: body
                .get("stream_options")
                .and_then(Value::as_object)
                .is_some_and(|options| flag(options, "include_usage", false)),
            cache_salt: body.get("cache_salt").and_then(Value::as_str).map(Into::into),
        })
    }
}

fn flag(body: &Map<String, Value>, key: &str, default: bool) -> bool {
    body.get(key).and_then(Value::as_bool).unwrap_or(default)
}

fn encode(tokenizer: &Tokenizer, chat: &Chat) -> Result<Vec<u32>, ApiError> {
    tokenizer.encode_chat(chat).map_err(|error| ApiError::invalid(error.to_string(), None))
}

/// The chat of a body with OpenAI messages; `/tokenize` has the same fields.
///
/// # Errors
/// Without messages, or with parts other than text.
pub fn chat(body: &Map<String, Value>) -> Result<Chat, ApiError> {
    let messages = body
        .get("messages")
        .and_then(Value::as_array)
        .ok_or(ApiError::missing("body.messages", body.len()))?;
    let parts = messages.iter().filter_map(|message| message.get("content")?.as_array()).flatten();
    if parts.into_iter().any(|part| part.get("text").is_none()) {
        let model = body.get("model").and_then(Value::as_str).unwrap_or("it");
        return Err(ApiError::invalid(format!("{model} is not a multimodal model"), None));
    }
    let kwargs = body.get("chat_template_kwargs").and_then(Value::as_object).cloned().unwrap_or_default();
    Ok(Chat {
        messages: messages.clone(),
        tools: body
            .get("tools")
            .and_then(Value::as_array)
            .filter(|tools| !tools.is_empty())
            .map(|tools| tools.iter().map(tool).collect()),
        kwargs: kwargs.into_iter().collect(),
        add_generation_prompt: flag(body, "add_generation_prompt", true),
        continue_final_message: flag(body, "continue_final_message", false),
    })
}

/// A tool as the engine's own types write it out again: known fields first, those not given as null.
fn tool(tool: &Value) -> Value {
    let Some(function) = tool.get("function").and_then(Value::as_object) else { return tool.clone() };
    let known = ["name", "description", "parameters"];
    let mut all: Map<String, Value> = known
        .iter()
        .map(|key| ((*key).to_owned(), function.get(*key).cloned().unwrap_or_default()))
        .collect();
    all.extend(function.iter().map(|(key, value)| (key.clone(), value.clone())));
    json!({"type": "function", "function": all})
}

fn completion_prompts(body: &Map<String, Value>, tokenizer: &Tokenizer) -> Result<Vec<Vec<u32>>, ApiError> {
    let prompt = body.get("prompt").ok_or(ApiError::missing("body.prompt", body.len()))?;
    let special = flag(body, "add_special_tokens", true);
    let one = |prompt: &Value| match prompt {
        Value::String(text) => tokenizer.encode(text, special).map_err(ApiError::internal),
        ids => serde_json::from_value(ids.clone())
            .map_err(|_| ApiError::invalid("A prompt is a string or a list of token ids.", Some("prompt"))),
    };
    match prompt {
        Value::Array(items) if !items.iter().all(Value::is_number) => items.iter().map(one).collect(),
        prompt => Ok(vec![one(prompt)?]),
    }
}

fn responses(body: &Map<String, Value>) -> Result<Chat, ApiError> {
    if body.get("previous_response_id").is_some_and(Value::is_string) {
        return Err(ApiError::previous_response());
    }
    let mut messages: Vec<Value> = system(body.get("instructions"));
    match body.get("input").ok_or(ApiError::missing("body.input", body.len()))? {
        Value::Array(items) => messages.extend(items.iter().cloned()),
        text => messages.push(json!({"role": "user", "content": text})),
    }
    converted(messages)
}

fn anthropic(body: &Map<String, Value>) -> Result<Chat, ApiError> {
    let mut messages = system(body.get("system"));
    let turns = body
        .get("messages")
        .and_then(Value::as_array)
        .ok_or(ApiError::missing("body.messages", body.len()))?;
    messages.extend(turns.iter().cloned());
    converted(messages)
}

fn system(content: Option<&Value>) -> Vec<Value> {
    content
        .filter(|content| !content.is_null())
        .map(|c| json!({"role": "system", "content": c}))
        .into_iter()
        .collect()
}

fn converted(messages: Vec<Value>) -> Result<Chat, ApiError> {
    let body = Map::from_iter([("messages".to_owned(), Value::Array(messages))]);
    chat(&body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_written_out_with_all_known_fields() {
        let given = json!({"function": {"parameters": {}, "strict": true, "name": "f"}, "type": "function"});
        let want =
            r#"{"type":"function","function":{"name":"f","description":null,"parameters":{},"strict":true}}"#;
        assert_eq!(tool(&given).to_string(), want);
    }
}
