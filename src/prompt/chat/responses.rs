//! `/v1/responses`: items to chat messages, as the engine does it. Neighbouring items of the assistant
//! (reasoning, text, calls) share one message.

use serde_json::{Map, Value, json};

use super::{Conversation, Unreadable, field, text};
use crate::prompt::fields::Fields;

/// The conversation of a responses request that stands on its own (no stored response before it).
pub(super) fn conversation(fields: &Fields<'_>) -> Result<Conversation, Unreadable> {
    let mut messages = Vec::new();
    if let Some(instructions) = field::<String>(fields, "instructions")?.filter(|text| !text.is_empty()) {
        messages.push(json!({"role": "system", "content": instructions}));
    }
    let mut open = false;
    match field::<Value>(fields, "input")? {
        Some(Value::String(input)) => messages.push(json!({"role": "user", "content": input})),
        Some(Value::Array(items)) => {
            open = items.last().is_some_and(is_partial);
            let from = messages.len();
            for item in items {
                let previous = if messages.len() > from { messages.last_mut() } else { None };
                if let Some(message) = message(item, previous)? {
                    messages.push(message);
                }
            }
        }
        _ => return Err("`input` is neither a string nor items".to_owned()),
    }
    let mut kwargs = Map::new();
    let effort = field::<Value>(fields, "reasoning")?
        .and_then(|mut reasoning| Some(reasoning.get_mut("effort")?.take()));
    if let Some(effort) = effort.filter(|effort| !effort.is_null()) {
        kwargs.insert("reasoning_effort".to_owned(), effort);
    }
    let tools = field::<Vec<Value>>(fields, "tools")?.filter(|tools| !tools.is_empty());
    let functions = |tools: Vec<Value>| tools.into_iter().filter(|tool| text(tool, "type") == "function");
    Ok(Conversation {
        messages,
        tools: tools.map(|tools| functions(tools).map(tool).collect()),
        kwargs,
        add_generation_prompt: !open,
        continue_final_message: open,
        ..Conversation::default()
    })
}

/// Whether the last item is one that the model is to go on with.
fn is_partial(item: &Value) -> bool {
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    matches!(kind, "message" | "reasoning") && matches!(text(item, "status"), "in_progress" | "incomplete")
}

/// The message of an item; `None` when it went into the previous one.
fn message(item: Value, previous: Option<&mut Value>) -> Result<Option<Value>, Unreadable> {
    let previous = previous.filter(|message| text(message, "role") == "assistant");
    Ok(match text(&item, "type") {
        "function_call" => call(&item, previous),
        "function_call_output" => {
            let part = |key| item.get(key).cloned().unwrap_or_default();
            Some(json!({"role": "tool", "content": part("output"), "tool_call_id": part("call_id")}))
        }
        "reasoning" if item.get("encrypted_content").is_some_and(|it| !it.is_null()) => {
            return Err("encrypted reasoning".to_owned());
        }
        "reasoning" => {
            let of = |key| item.get(key).and_then(Value::as_array).filter(|parts| !parts.is_empty());
            let reasoning = of("content").or_else(|| of("summary")).map(|parts| first_text(parts));
            merge(previous, "reasoning", reasoning.unwrap_or_default())
        }
        "" | "message" if text(&item, "role") == "assistant" => {
            let content = match item.get("content") {
                Some(Value::String(content)) => content.clone(),
                Some(Value::Array(parts)) => first_text(parts),
                _ => String::new(),
            };
            merge(previous, "content", content)
        }
        _ => Some(item),
    })
}

/// Into the previous message of the assistant where it has none of that yet, else a message of its own.
fn merge(previous: Option<&mut Value>, key: &str, value: String) -> Option<Value> {
    let mut message = json!({"role": "assistant"});
    let (target, merged) = match previous.filter(|message| message.get(key).is_none_or(Value::is_null)) {
        Some(previous) => (previous, true),
        None => (&mut message, false),
    };
    target[key] = Value::String(value);
    (!merged).then_some(message)
}

fn call(item: &Value, previous: Option<&mut Value>) -> Option<Value> {
    let name = match text(item, "namespace") {
        "" => text(item, "name").to_owned(),
        namespace => format!("{namespace}.{}", text(item, "name")),
    };
    let arguments = item.get("arguments").cloned().unwrap_or_default();
    let id = item.get("call_id").cloned().unwrap_or_default();
    let call = json!({"id": id, "function": {"name": name, "arguments": arguments}, "type": "function"});
    let Some(previous) = previous else {
        return Some(json!({"role": "assistant", "tool_calls": [call]}));
    };
    match previous.get_mut("tool_calls").and_then(Value::as_array_mut) {
        Some(calls) => calls.push(call),
        None => previous["tool_calls"] = json!([call]),
    }
    None
}

fn first_text(parts: &[Value]) -> String {
    match parts.first() {
        Some(Value::String(part)) => part.clone(),
        Some(part) => text(part, "text").to_owned(),
        None => String::new(),
    }
}

/// A flat tool, nested as chat completions have it. The engine's model of a flat tool always has `strict`.
fn tool(tool: Value) -> Value {
    let Value::Object(mut function) = tool else { return tool };
    function.shift_remove("type");
    function.entry("strict").or_insert(Value::Null);
    json!({"type": "function", "function": function})
}
