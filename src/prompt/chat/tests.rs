//! Conversations of all APIs as chat messages, and chat messages as the template sees them.

use bytes::Bytes;
use llm_tokenizer::chat_template::ChatTemplateContentFormat::{self, OpenAI, String as Plain};
use serde_json::json;

use super::*;

fn read(api: Api, body: &Value) -> Result<Conversation, Unreadable> {
    conversation(&ParsedRequest::read(api, &Bytes::from(body.to_string())).unwrap())
}

fn seen(messages: &Value, format: ChatTemplateContentFormat) -> Result<Vec<Value>, Unreadable> {
    let chat = read(Api::ChatCompletions, &json!({"messages": messages}))?;
    engine_view(&chat, format).map(|view| view.messages)
}

#[test]
fn chat_parameters_reach_the_template() {
    let chat = read(
        Api::ChatCompletions,
        &json!({
            "messages": [{"role": "user", "content": "a"}],
            "chat_template_kwargs": {"k": 1, "add_generation_prompt": true, "tools": []},
            "add_generation_prompt": false,
            "reasoning_effort": "none",
            "documents": [{"text": "d"}],
        }),
    )
    .unwrap();
    assert!(!chat.add_generation_prompt);
    assert_eq!(
        Value::from(chat.kwargs),
        json!({"k": 1, "enable_thinking": false, "reasoning_effort": "none"})
    );
    assert_eq!(chat.documents.unwrap().len(), 1);
    let thinking = json!({"messages": [], "reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": false}});
    assert_eq!(read(Api::ChatCompletions, &thinking).unwrap().kwargs["enable_thinking"], false);
    for unreadable in [
        json!({"messages": [1]}),
        json!({"messages": [], "chat_template": "x"}),
        json!({"messages": [], "tools": 1}),
    ] {
        assert!(read(Api::ChatCompletions, &unreadable).is_err(), "{unreadable}");
    }
}

#[test]
fn responses_items_of_one_turn_share_a_message() {
    let response = read(
        Api::Responses,
        &json!({
            "instructions": "be terse",
            "reasoning": {"effort": "high"},
            "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "web_search"}],
            "input": [
                {"role": "user", "content": "weather?"},
                {"type": "reasoning", "summary": [{"text": "s"}], "content": [{"type": "reasoning_text", "text": "r"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me see"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{\"a\": 1}"},
                {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "sun"},
                {"role": "assistant", "content": "It is", "status": "incomplete"},
            ],
        }),
    )
    .unwrap();
    let call = |id, arguments| json!({"id": id, "function": {"name": "f", "arguments": arguments}, "type": "function"});
    assert_eq!(
        Value::from(response.messages),
        json!([
            {"role": "system", "content": "be terse"},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "reasoning": "r", "content": "let me see",
             "tool_calls": [call("c1", "{\"a\": 1}"), call("c2", "{}")]},
            {"role": "tool", "content": "sun", "tool_call_id": "c1"},
            {"role": "assistant", "content": "It is"},
        ])
    );
    let tool = json!([{"type": "function", "function": {"name": "f", "parameters": {}, "strict": null}}]);
    assert_eq!(Value::from(response.tools.unwrap()), tool);
    assert_eq!(response.kwargs["reasoning_effort"], "high");
    assert!(response.continue_final_message && !response.add_generation_prompt);
    let secret = json!({"input": [{"type": "reasoning", "encrypted_content": "x", "summary": []}]});
    assert!(read(Api::Responses, &secret).is_err());
}

#[test]
fn anthropic_blocks_become_messages() {
    let messages = read(
        Api::Messages,
        &json!({
            "system": [{"type": "text", "text": "x-anthropic-billing-header: 7"}, {"type": "text", "text": "be "}, {"type": "text", "text": "terse"}],
            "tools": [{"name": "f", "input_schema": {"properties": {}}}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "hm"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": [1, 2]}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}, {"type": "text", "text": "21"}]},
                    {"type": "text", "text": "and?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}]},
            ],
        }),
    )
    .unwrap();
    let call =
        json!({"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":[1,2]}"}});
    assert_eq!(
        Value::from(messages.messages),
        json!([
            {"role": "system", "content": "be terse"},
            {"role": "user", "content": "weather?"},
            {"role": "assistant", "reasoning": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "t1", "content": "sun\n21"},
            {"role": "user", "content": [
                {"type": "text", "text": "and?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]},
        ])
    );
    assert_eq!(
        messages.tools.unwrap()[0]["function"]["parameters"],
        json!({"properties": {}, "type": "object"})
    );
}

#[test]
fn contents_take_the_form_that_the_template_reads() {
    let messages = json!([
        {"role": "system", "content": "s"},
        {"role": "user", "content": ["a", {"type": "text", "text": ""}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null, "reasoning_content": "r", "tool_calls": []},
        {"role": "tool", "tool_call_id": "t", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
    ]);
    let text = |text| json!({"type": "text", "text": text});
    let assistant = |content| json!({"role": "assistant", "content": content, "reasoning": "r", "reasoning_content": "r"});
    let tool = json!({"role": "tool", "content": "x\ny", "tool_call_id": "t"});
    assert_eq!(
        Value::from(seen(&messages, Plain).unwrap()),
        json!([{"role": "system", "content": "s"}, {"role": "user", "content": "a\nb"}, assistant(json!("")), tool])
    );
    let user = json!([text("a"), text(""), {"type": "image"}, text("b")]);
    assert_eq!(
        Value::from(seen(&messages, OpenAI).unwrap()),
        json!([{"role": "system", "content": [text("s")]}, {"role": "user", "content": user}, assistant(json!([])), tool])
    );
    for wrong in [
        json!([{"role": "user", "content": 1}]),
        json!([{"role": "user", "content": [{"type": "hologram"}]}]),
    ] {
        assert!(seen(&wrong, Plain).is_err(), "{wrong}");
    }
}

#[test]
fn arguments_are_parsed_and_tools_have_all_their_fields() {
    let calls = json!([
        {"id": "1", "function": {"name": "f", "arguments": "{\"a\": 1}"}},
        {"id": "2", "function": {"name": "f", "arguments": "not json"}},
        {"id": "3", "function": {"name": "f"}},
    ]);
    let seen = seen(&json!([{"role": "assistant", "tool_calls": calls}]), Plain).unwrap();
    let arguments: Vec<_> =
        (0..3).map(|n| seen[0]["tool_calls"][n]["function"]["arguments"].clone()).collect();
    assert_eq!(arguments, [json!({"a": 1}), json!({}), json!({})]);
    let chat = json!({"messages": [], "tools": [
        {"function": {"strict": true, "parameters": {}, "name": "f", "defer_loading": null}, "type": "function"},
        {"type": "function", "function": {"name": "g", "x": 1, "defer_loading": true}},
    ]});
    let view = engine_view(&read(Api::ChatCompletions, &chat).unwrap(), Plain).unwrap();
    let written: Vec<String> = view.tools.unwrap().iter().map(Value::to_string).collect();
    assert_eq!(
        written,
        [
            r#"{"type":"function","function":{"name":"f","description":null,"parameters":{},"strict":true}}"#,
            r#"{"type":"function","function":{"name":"g","description":null,"parameters":null,"defer_loading":true,"x":1}}"#,
        ]
    );
}
