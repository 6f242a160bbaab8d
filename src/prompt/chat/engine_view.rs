//! Chat messages as the engine hands them to the template: contents flattened or wrapped as the template
//! reads them, arguments parsed, tools with all their fields.

use std::collections::HashMap;

use llm_tokenizer::chat_template::ChatTemplateContentFormat;
use serde_json::{Map, Value, json};

use super::{Conversation, Unreadable, text};
use crate::prompt::media::modality;

/// What the template is rendered with.
pub(in crate::prompt) struct EngineView {
    /// Messages.
    pub(in crate::prompt) messages: Vec<Value>,
    /// Tools; `None` where there are none.
    pub(in crate::prompt) tools: Option<Vec<Value>>,
    /// Further variables.
    pub(in crate::prompt) kwargs: HashMap<String, Value>,
    /// The first message with an image, audio clip or video.
    pub(in crate::prompt) first_media: Option<usize>,
}

/// The engine's view of a conversation, for a template that reads contents in that format.
///
/// # Errors
/// Contents that the engine refuses, or that become tokens in a way that can't be known here.
pub(in crate::prompt) fn engine_view(
    conversation: &Conversation,
    format: ChatTemplateContentFormat,
) -> Result<EngineView, Unreadable> {
    let mut first_media = None;
    let mut messages = Vec::with_capacity(conversation.messages.len());
    for (n, message) in conversation.messages.iter().enumerate() {
        let (message, has_media) = view(message, format)?;
        if has_media && first_media.is_none() {
            first_media = Some(n);
        }
        messages.push(message);
    }
    let tools = conversation.tools.as_deref().map(|tools| tools.iter().map(tool).collect()).transpose()?;
    let kwargs = conversation.kwargs.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(EngineView { messages, tools, kwargs, first_media })
}

fn view(message: &Value, format: ChatTemplateContentFormat) -> Result<(Value, bool), Unreadable> {
    let role = text(message, "role");
    let wrap = format == ChatTemplateContentFormat::OpenAI;
    let (parts, has_media) = parts(&message["content"], wrap)?;
    let mut out = Map::new();
    out.insert("role".to_owned(), json!(role));
    // A tool's texts are joined whatever the format, but for references that the template expands.
    let only_text = parts.iter().all(|part| part.is_string() || text(part, "type") == "text");
    let content =
        if !wrap || (role == "tool" && only_text) { joined(&parts, wrap) } else { Value::Array(parts) };
    out.insert("content".to_owned(), content);
    if role == "assistant" {
        let calls = message.get("tool_calls").and_then(Value::as_array).filter(|calls| !calls.is_empty());
        if let Some(calls) = calls {
            out.insert("tool_calls".to_owned(), calls.iter().map(call).collect());
        }
        let named = |key| message.get(key).filter(|it| !it.is_null());
        if let Some(reasoning) = named("reasoning").or_else(|| named("reasoning_content")) {
            out.insert("reasoning".to_owned(), reasoning.clone());
            out.insert("reasoning_content".to_owned(), reasoning.clone());
        }
    }
    if let Some(id) = message.get("tool_call_id").filter(|_| role == "tool") {
        out.insert("tool_call_id".to_owned(), id.clone());
    }
    for key in ["name", "task"] {
        if let Some(value) = message.get(key).filter(|it| it.is_string()) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    if role == "developer" {
        out.insert("tools".to_owned(), message["tools"].clone());
    }
    Ok((Value::Object(out), has_media))
}

/// The parts of a content, and whether one of them is not text.
fn parts(content: &Value, wrap: bool) -> Result<(Vec<Value>, bool), Unreadable> {
    let wrapped = |text: &Value| if wrap { json!({"type": "text", "text": text}) } else { text.clone() };
    let items = match content {
        Value::Null => return Ok((Vec::new(), false)),
        Value::String(_) => std::slice::from_ref(content),
        Value::Array(items) => items.as_slice(),
        _ => return Err("a content that is neither text nor parts".to_owned()),
    };
    let mut has_media = false;
    let mut out = Vec::with_capacity(items.len());
    for item in items {
        if item.is_string() {
            out.push(wrapped(item));
            continue;
        }
        match text(item, "type") {
            kind @ ("text" | "input_text" | "output_text" | "refusal" | "thinking") => {
                let key = if matches!(kind, "refusal" | "thinking") { kind } else { "text" };
                out.extend(item.get(key).filter(|text| text.is_string()).map(wrapped));
            }
            "tool_reference" if wrap => out.push(json!({"type": "tool_reference", "name": item["name"]})),
            "tool_reference" => out.push(item["name"].clone()),
            kind => {
                let keys = item.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
                let untyped = || keys.filter(|_| kind.is_empty()).find_map(modality);
                let modality = modality(kind).or_else(untyped);
                let modality = modality.ok_or_else(|| format!("a content part of type `{kind}`"))?;
                has_media = true;
                // In plain text the engine puts placeholders in front, where they earn no credit here.
                if wrap {
                    out.push(json!({"type": modality}));
                }
            }
        }
    }
    Ok((out, has_media))
}

fn joined(parts: &[Value], wrapped: bool) -> Value {
    let part = |part| if wrapped { text(part, "text") } else { part.as_str().unwrap_or_default() };
    // Plain empty texts are dropped before they are joined, wrapped ones are not.
    let texts: Vec<&str> = parts.iter().map(part).filter(|text| wrapped || !text.is_empty()).collect();
    Value::String(texts.join("\n"))
}

/// Templates read a call's arguments as an object.
fn call(call: &Value) -> Value {
    let mut call = call.clone();
    let Some(function) = call.get_mut("function").and_then(Value::as_object_mut) else { return call };
    let arguments = match function.get("arguments") {
        Some(Value::String(arguments)) => serde_json::from_str(arguments).unwrap_or_else(|_| json!({})),
        Some(arguments @ (Value::Object(_) | Value::Array(_))) => arguments.clone(),
        _ => json!({}),
    };
    function.insert("arguments".to_owned(), arguments);
    call
}

/// A tool with every field that the engine's model of it has, in that model's order, then the others.
fn tool(tool: &Value) -> Result<Value, Unreadable> {
    let function = tool.get("function").and_then(Value::as_object).ok_or("a tool that is no function")?;
    let mut out = Map::new();
    for key in ["name", "description", "parameters"] {
        out.insert(key.to_owned(), function.get(key).cloned().unwrap_or_default());
    }
    let deferred = function.get_key_value("defer_loading").filter(|(_, value)| !value.is_null());
    let others = function.iter().filter(|(key, _)| *key != "defer_loading");
    for (key, value) in deferred.into_iter().chain(others) {
        out.entry(key.clone()).or_insert_with(|| value.clone());
    }
    let mut whole = Map::new();
    whole.insert("type".to_owned(), json!("function"));
    whole.insert("function".to_owned(), Value::Object(out));
    for (key, value) in tool.as_object().into_iter().flatten() {
        whole.entry(key.clone()).or_insert_with(|| value.clone());
    }
    Ok(Value::Object(whole))
}
