//! `/v1/messages`: Anthropic's messages, system blocks and tools as the chat completion that the engine
//! makes of them.

use serde_json::{Map, Value, json};

use super::{Conversation, Unreadable, field, set_effort, text};
use crate::prompt::fields::Fields;

/// A system block that some clients send with a hash that differs by request: the engine drops it.
const BILLING: &str = "x-anthropic-billing-header";

/// The conversation of a messages request.
pub(super) fn conversation(fields: &Fields<'_>) -> Result<Conversation, Unreadable> {
    let sent: Vec<Value> = field(fields, "messages")?.unwrap_or_default();
    let mut messages = Vec::new();
    let mut system = String::new();
    system_text(&field::<Value>(fields, "system")?.unwrap_or_default(), &mut system);
    let is_system = |message: &Value| text(message, "role") == "system";
    for message in sent.iter().filter(|message| is_system(message)) {
        system_text(&message["content"], &mut system);
    }
    if !system.is_empty() {
        messages.push(json!({"role": "system", "content": system}));
    }
    for message in sent.into_iter().filter(|message| !is_system(message)) {
        push_message(message, &mut messages)?;
    }
    let mut kwargs: Map<String, Value> = field(fields, "chat_template_kwargs")?.unwrap_or_default();
    let effort = field::<Value>(fields, "output_config")?
        .and_then(|mut output| Some(output.get_mut("effort")?.take()));
    if let Some(effort) = effort.filter(|effort| !effort.is_null()) {
        set_effort(&mut kwargs, effort);
    }
    let tools = field::<Vec<Value>>(fields, "tools")?.map(|tools| tools.into_iter().map(tool).collect());
    Ok(Conversation { messages, tools, kwargs, add_generation_prompt: true, ..Conversation::default() })
}

fn system_text(content: &Value, out: &mut String) {
    match content {
        Value::String(content) => out.push_str(content),
        Value::Array(blocks) => {
            let blocks = blocks.iter().filter(|block| text(block, "type") == "text");
            blocks
                .map(|block| text(block, "text"))
                .filter(|block| !block.starts_with(BILLING))
                .for_each(|block| out.push_str(block));
        }
        _ => {}
    }
}

fn push_message(message: Value, messages: &mut Vec<Value>) -> Result<(), Unreadable> {
    let role = text(&message, "role").to_owned();
    let blocks = match &message["content"] {
        Value::String(content) => {
            messages.push(json!({"role": role, "content": content}));
            return Ok(());
        }
        Value::Array(blocks) => blocks,
        _ => return Err("a message without content".to_owned()),
    };
    let (mut parts, mut calls, mut reasoning) = (Vec::new(), Vec::new(), None::<String>);
    for block in blocks {
        match text(block, "type") {
            "text" if !text(block, "text").is_empty() => {
                parts.push(json!({"type": "text", "text": block["text"]}))
            }
            "image" if block["source"].is_object() => parts.push(image(&block["source"])),
            "thinking" if block["thinking"].is_string() => {
                reasoning.get_or_insert_default().push_str(text(block, "thinking"));
            }
            "tool_use" => calls.push(call(block)),
            "tool_result" if role == "user" => push_result(block, messages),
            "tool_result" => return Err("a tool result that is not the user's".to_owned()),
            _ => {}
        }
    }
    let mut out = json!({"role": role});
    if let Some(reasoning) = reasoning {
        out["reasoning"] = Value::String(reasoning);
    }
    if !calls.is_empty() {
        out["tool_calls"] = Value::Array(calls);
    }
    match parts.as_mut_slice() {
        [] => {}
        [only] if text(only, "type") == "text" => out["content"] = only["text"].take(),
        _ => out["content"] = Value::Array(parts),
    }
    if role != "user" || out.get("content").is_some() {
        messages.push(out);
    }
    Ok(())
}

fn image(source: &Value) -> Value {
    let url = match text(source, "type") {
        "url" => text(source, "url").to_owned(),
        _ => {
            let media = source.get("media_type").and_then(Value::as_str).unwrap_or("image/jpeg");
            format!("data:{media};base64,{}", text(source, "data"))
        }
    };
    json!({"type": "image_url", "image_url": {"url": url}})
}

fn call(block: &Value) -> Value {
    let input = block.get("input").filter(|input| !input.is_null()).cloned().unwrap_or_else(|| json!({}));
    json!({
        "id": block["id"],
        "type": "function",
        "function": {"name": text(block, "name"), "arguments": input.to_string()},
    })
}

/// A result is a message of the tool; images in it follow as a message of the user.
fn push_result(block: &Value, messages: &mut Vec<Value>) {
    let id = text(block, "tool_use_id");
    let (mut texts, mut images, mut references) = (Vec::new(), Vec::new(), Vec::new());
    match &block["content"] {
        Value::String(content) => texts.push(content.as_str()),
        Value::Array(items) => {
            for item in items {
                match text(item, "type") {
                    "text" => texts.push(text(item, "text")),
                    "image" => images.push(image(&item["source"])),
                    "tool_reference" => {
                        let name = item.get("tool_name").or_else(|| item.get("name")).and_then(Value::as_str);
                        references.extend(name.map(|name| json!({"type": "tool_reference", "name": name})));
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    messages.push(json!({"role": "tool", "tool_call_id": id, "content": texts.join("\n")}));
    if !images.is_empty() {
        messages.push(json!({"role": "user", "content": images}));
    }
    if !references.is_empty() {
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": references}));
    }
}

/// A tool in the shape of chat completions; the schema is an object unless it says otherwise.
fn tool(tool: Value) -> Value {
    let mut schema = tool.get("input_schema").cloned().unwrap_or_else(|| json!({}));
    if let Some(schema) = schema.as_object_mut() {
        schema.entry("type").or_insert_with(|| json!("object"));
    }
    json!({
        "type": "function",
        "function": {
            "name": tool["name"],
            "description": tool["description"],
            "parameters": schema,
            "defer_loading": tool["defer_loading"],
        },
    })
}
